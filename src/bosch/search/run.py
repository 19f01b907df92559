"""One search from a model's name to a directory with its mask, its scores and a report."""

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.calibration import ExampleSet, Split, make_examples
from bosch.decoder import Decoder
from bosch.evaluator import Evaluator
from bosch.files import write_json
from bosch.heads import HeadMask
from bosch.journal import Journal
from bosch.models import load_model
from bosch.objective import Objective
from bosch.provenance import model_hash, provenance
from bosch.search.directory import RunDirectory, make_directory, open_run
from bosch.search.progress import Progress
from bosch.search.report import write_report
from bosch.search.settings import SearchSettings
from bosch.selectors import SELECTORS, Selection, random_mask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NUM_RANDOM_MASKS = 5


def search(settings: SearchSettings, output: Path, *, overwrite: bool = False) -> RunDirectory:
    """Search a model's heads; the same call on the same directory goes on where it was stopped.

    Args:
        settings: everything that determines the result.
        output: the run's directory.
        overwrite: replace another run that is there.

    Returns:
        The directory: `mask.json`, `selection.json`, `scores.json`, both journals, `report.md` and pictures.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    haystack = settings.haystack_text()
    run = open_run(output, settings, overwrite=overwrite)
    model, tokenizer = load_model(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        trust_remote_code=settings.trust_remote_code,
    )
    decoder = Decoder(model)
    subject = {"model": settings.model, "model_hash": model_hash(model), "dtype": str(model.dtype)}
    calibration, heldout = _make_sets(tokenizer, settings, haystack)
    with (
        contextlib.closing(Progress()) as progress,
        _open_journal(run.journal, subject, calibration, settings) as journal,
        _open_journal(run.heldout_journal, subject, heldout, settings) as heldout_journal,
    ):
        if run.is_finished:  # and of this very model and these very examples, as the journals say
            return run
        evaluator = _make_evaluator(decoder, calibration, settings, journal, progress)
        objective = Objective(evaluator, settings.objective)
        progress.on_stage("anchors", 2)
        low, high = objective.anchors
        started = time.monotonic()
        selection = SELECTORS[settings.method](
            objective,
            settings.ratio,
            budget=settings.evaluations_per_layer,
            seed=settings.seed,
            on_stage=progress.on_stage,
        )
        cost = {
            "seconds_this_time": round(time.monotonic() - started, 1),
            "evaluations": evaluator.num_evaluations,
            "full_passes": round(evaluator.full_passes, 2),
        }
        facts = {**subject, "anchors": [low, high], "calibration": calibration.fingerprint, **cost}
        _save_selection(run, selection, settings, facts)
        judge = _make_evaluator(decoder, heldout, settings, heldout_journal, progress)
        scores = _compare(evaluator, judge, selection, settings, progress)
        write_json(run.scores, {"facts": {**facts, "heldout": _describe(heldout, decoder, settings)}, "rows": scores})
        write_report(run, settings, selection, evaluator.history)
    return run


def _make_sets(
    tokenizer: "PreTrainedTokenizerBase", settings: SearchSettings, haystack: str | None
) -> tuple[ExampleSet, ExampleSet]:
    """The calibration set and the held-out set."""

    def make(split: Split, num_examples: int) -> ExampleSet:
        return make_examples(
            tokenizer,
            tasks=settings.tasks,
            lengths=settings.length,
            num_examples=num_examples,
            seed=settings.seed,
            split=split,
            haystack_text=haystack,
            chat=settings.chat,
        )

    return make("calibration", settings.examples), make("heldout", settings.heldout)


def _open_journal(path: Path, subject: Mapping[str, str], examples: ExampleSet, settings: SearchSettings) -> Journal:
    shape = {"window": settings.window, "sinks": settings.sinks}
    return Journal(path, {**subject, "examples": examples.fingerprint, **shape})


def _make_evaluator(
    decoder: Decoder, examples: ExampleSet, settings: SearchSettings, journal: Journal, progress: Progress
) -> Evaluator:
    return Evaluator(
        decoder,
        examples,
        window=settings.window,
        sinks=settings.sinks,
        journal=journal,
        memory_bytes=int(settings.memory_gib * 2**30),
        on_evaluation=progress.on_evaluation,
    )


def _save_selection(
    run: RunDirectory, selection: Selection, settings: SearchSettings, facts: Mapping[str, Any]
) -> None:
    origin = {"settings": dataclasses.asdict(settings), **facts, **provenance()}
    selection.mask.save(run.mask, origin)
    write_json(run.selection, {**selection.record, "facts": dict(facts)})
    if selection.path:
        make_directory(run.path_masks)
    for mask in selection.path:
        mask.save(run.path_masks / f"{mask.num_localized:04d}.json", origin)


def _compare(
    evaluator: Evaluator, judge: Evaluator, selection: Selection, settings: SearchSettings, progress: Progress
) -> list[dict[str, Any]]:
    """Scores of the chosen mask beside the original, all sliding and random masks. The masks on the way have scores
    on the calibration set already; on the held-out set they would cost as much as all the others together."""
    randoms = [random_mask(evaluator.full, settings.ratio, settings.seed + i) for i in range(NUM_RANDOM_MASKS)]
    named = [
        ("original", evaluator.full),
        (settings.method, selection.mask),
        *((f"random {i}", mask) for i, mask in enumerate(randoms, start=1)),
        ("all sliding", evaluator.sliding),
    ]
    progress.on_stage("scores on both sets", sum(not e.is_known(mask) for _, mask in named for e in (evaluator, judge)))
    on_the_way = [_row(f"{settings.method} on the way", mask, calibration=evaluator) for mask in selection.path]
    return [_row(name, mask, calibration=evaluator, heldout=judge) for name, mask in named] + on_the_way


def _row(name: str, mask: HeadMask, **scorers: Evaluator) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "ratio": mask.ratio, "mask": mask.key()}
    for split, scorer in scorers.items():
        score = scorer.score(mask)
        by_group = scorer.examples.by_task_and_length().items()
        row[split] = {
            "accuracy": score.accuracy,
            "nll": score.nll,
            "examples": len(score.hits),
            "accuracy_by_task": {
                f"{task} @ {length}": sum(score.hits[i] for i in members) / len(members)
                for (task, length), members in by_group
            },
        }
    return row


def _describe(heldout: ExampleSet, decoder: Decoder, settings: SearchSettings) -> dict[str, Any]:
    """What the held-out set can show: how far back its needles lie against what sliding layers alone can reach."""
    reach = decoder.num_layers * (settings.window - 1) + settings.sinks
    return {
        "fingerprint": heldout.fingerprint,
        "sliding_reach_tokens": reach,
        "share_of_needles_beyond_reach": heldout.share_beyond(reach),
    }

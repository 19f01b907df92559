"""One search from a model's name to a directory with its mask, its scores and a report."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bosch.cache_size import CacheBudget
from bosch.counting import CountingScorer
from bosch.evaluator import Evaluator
from bosch.experiment.directory import make_directory, open_directory
from bosch.experiment.opening import Experiment, open_experiment, score_row
from bosch.files import write_json
from bosch.heads import HeadMask
from bosch.provenance import provenance
from bosch.search.directory import RunDirectory
from bosch.search.report import write_report
from bosch.search.settings import SearchSettings
from bosch.search.targets import masks_on_the_way, select_targets, share_of_exchanges
from bosch.search.widening import widen
from bosch.selectors import SELECTORS, Selection, random_mask

NUM_RANDOM_MASKS = 5
DEFAULT_SHOWN_TOKENS = 32_768


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
    settings.haystack_text()  # what is wrong with it is said before a directory is made
    run = RunDirectory(output)
    open_directory(run, settings, overwrite=overwrite)
    with open_experiment(settings, run) as experiment:
        if run.is_finished:  # and of this very model and these very examples, as the journals say
            return run
        selections, facts = _select(experiment, settings)
        _save_selections(run, selections, settings, facts)
        scores = _compare(experiment, selections, settings)
        facts |= {"heldout": experiment.describe_heldout(), "cache_tokens": _shown_tokens(experiment)}
        write_json(run.scores, {"facts": facts, "rows": scores})
        write_report(run, settings, selections[-1], experiment.evaluator.history)
    return run


def _select(experiment: Experiment, settings: SearchSettings) -> tuple[list[Selection], dict[str, Any]]:
    """The selections, smallest ratio first, and what is to be said about them everywhere."""
    method, started = settings.method, time.monotonic()
    measured = experiment.measure([method])
    problem = experiment.problem(measured)
    experiment.progress.on_stage("anchors", 2)
    anchors = problem.objective.anchors

    cache_size = experiment.evaluator.decoder.cache_size
    budget = settings.evaluations_per_layer(method, problem.layout)
    on_stage = experiment.progress.on_stage

    def select(ratio: float) -> Selection:
        share = share_of_exchanges(settings, ratio, problem.layout.num_units)
        sharing = dataclasses.replace(problem, share_of_exchanges=share)
        selection = SELECTORS[method](sharing, ratio, budget=budget, seed=settings.seed, on_stage=on_stage)
        if not settings.wider_windows:
            return selection
        return widen(
            selection,
            problem.objective,
            windows=sorted(settings.wider_windows),
            num_bytes=lambda mask: cache_size.nbytes(mask, _shown_tokens(experiment)),
            limit=budget * len(problem.layout.eligible_layers),
            on_stage=on_stage,
        )

    selections = select_targets(settings, select, problem.objective, cache_size)
    scorer = problem.objective.scorer
    assert isinstance(scorer, CountingScorer)
    cost = scorer.cost(scorer.asked)
    if method in measured:
        cost += measured[method].cost
    return selections, {
        **experiment.facts,
        "anchors": list(anchors),
        "calibration": experiment.evaluator.examples.fingerprint,
        "seconds_this_time": round(time.monotonic() - started, 1),
        "evaluations": cost.evaluations,
        "full_passes": round(cost.full_passes, 2),
    }


def _save_selections(
    run: RunDirectory, selections: list[Selection], settings: SearchSettings, facts: Mapping[str, Any]
) -> None:
    """The largest ratio's mask is the result; the others lie beside it."""
    origin = {"settings": dataclasses.asdict(settings), **facts, **provenance()}
    *smaller, largest = selections
    largest.mask.save(run.mask, origin)
    records = {"smaller_ratios": [selection.record for selection in smaller]} if smaller else {}
    write_json(run.selection, {**largest.record, **records, "facts": dict(facts)})
    beside = [*masks_on_the_way(selections), *(selection.mask for selection in smaller)]
    if beside:
        make_directory(run.path_masks)
    for mask in beside:
        mask.save(run.path_masks / f"{mask.num_localized:04d}.json", origin)


def _compare(experiment: Experiment, selections: list[Selection], settings: SearchSettings) -> list[dict[str, Any]]:
    """Scores of the chosen masks beside the original, all sliding and random masks. The masks on the way have scores
    on the calibration set already; on the held-out set they would cost as much as all the others together."""
    evaluator, judge = experiment.evaluator, experiment.judge
    largest = selections[-1].mask.ratio
    randoms = [random_mask(evaluator.full, largest, settings.seed + i) for i in range(NUM_RANDOM_MASKS)]
    one_window = [selection.path[-1] for selection in selections] if settings.wider_windows else []
    named = [
        ("original", evaluator.full),
        *((f"{settings.method}, one window", mask) for mask in one_window),
        *((settings.method, selection.mask) for selection in selections),
        *((f"random {i}", mask) for i, mask in enumerate(randoms, start=1)),
        ("all sliding", evaluator.sliding),
    ]
    missing = sum(not scorer.is_known(mask) for _, mask in named for scorer in (evaluator, judge))
    experiment.progress.on_stage("scores on both sets", missing)
    rows = [_row(experiment, name, mask, calibration=evaluator, heldout=judge) for name, mask in named]
    on_the_way = f"{settings.method} on the way"
    return rows + [_row(experiment, on_the_way, mask, calibration=evaluator) for mask in masks_on_the_way(selections)]


def _row(experiment: Experiment, name: str, mask: HeadMask, **scorers: Evaluator) -> dict[str, Any]:
    cache_size = experiment.evaluator.decoder.cache_size
    num_bytes = cache_size.nbytes(mask, _shown_tokens(experiment))
    return {**score_row(name, mask, **scorers), "cache_bytes": num_bytes}


def _shown_tokens(experiment: Experiment) -> int:
    """At how many tokens caches are compared: those of the budget, or as many as the model was made for."""
    assert isinstance(experiment.settings, SearchSettings)
    if experiment.settings.kv_budget is not None:
        return CacheBudget.parse(experiment.settings.kv_budget).num_tokens
    return experiment.evaluator.decoder.max_length or DEFAULT_SHOWN_TOKENS

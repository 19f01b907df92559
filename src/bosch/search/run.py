"""One search from a model's name to a directory with its mask, its scores and a report."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bosch.counting import CountingScorer
from bosch.experiment.directory import make_directory, open_directory
from bosch.experiment.opening import Experiment, open_experiment, score_row
from bosch.files import write_json
from bosch.provenance import provenance
from bosch.search.directory import RunDirectory
from bosch.search.report import write_report
from bosch.search.settings import SearchSettings
from bosch.selectors import SELECTORS, Selection, random_mask

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
    settings.haystack_text()  # what is wrong with it is said before a directory is made
    run = RunDirectory(output)
    open_directory(run, settings, overwrite=overwrite)
    with open_experiment(settings, run) as experiment:
        if run.is_finished:  # and of this very model and these very examples, as the journals say
            return run
        selection, facts = _select(experiment, settings)
        _save_selection(run, selection, settings, facts)
        scores = _compare(experiment, selection, settings)
        facts["heldout"] = experiment.describe_heldout()
        write_json(run.scores, {"facts": facts, "rows": scores})
        write_report(run, settings, selection, experiment.evaluator.history)
    return run


def _select(experiment: Experiment, settings: SearchSettings) -> tuple[Selection, dict[str, Any]]:
    """The selection, and what is to be said about it everywhere."""
    method, started = settings.method, time.monotonic()
    measured = experiment.measure([method])
    problem = experiment.problem(measured)
    experiment.progress.on_stage("anchors", 2)
    anchors = problem.objective.anchors
    selection = SELECTORS[method](
        problem,
        settings.ratio,
        budget=settings.evaluations_per_layer(method),
        seed=settings.seed,
        on_stage=experiment.progress.on_stage,
    )
    scorer = problem.objective.scorer
    assert isinstance(scorer, CountingScorer)
    cost = scorer.cost(scorer.asked)
    if method in measured:
        cost += measured[method].cost
    return selection, {
        **experiment.facts,
        "anchors": list(anchors),
        "calibration": experiment.evaluator.examples.fingerprint,
        "seconds_this_time": round(time.monotonic() - started, 1),
        "evaluations": cost.evaluations,
        "full_passes": round(cost.full_passes, 2),
    }


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


def _compare(experiment: Experiment, selection: Selection, settings: SearchSettings) -> list[dict[str, Any]]:
    """Scores of the chosen mask beside the original, all sliding and random masks. The masks on the way have scores
    on the calibration set already; on the held-out set they would cost as much as all the others together."""
    evaluator, judge = experiment.evaluator, experiment.judge
    randoms = [random_mask(evaluator.full, settings.ratio, settings.seed + i) for i in range(NUM_RANDOM_MASKS)]
    named = [
        ("original", evaluator.full),
        (settings.method, selection.mask),
        *((f"random {i}", mask) for i, mask in enumerate(randoms, start=1)),
        ("all sliding", evaluator.sliding),
    ]
    missing = sum(not scorer.is_known(mask) for _, mask in named for scorer in (evaluator, judge))
    experiment.progress.on_stage("scores on both sets", missing)
    on_the_way = [score_row(f"{settings.method} on the way", mask, calibration=evaluator) for mask in selection.path]
    return [score_row(name, mask, calibration=evaluator, heldout=judge) for name, mask in named] + on_the_way

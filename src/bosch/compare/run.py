"""Every method at every ratio, scored on the same held-out examples."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bosch.compare.directory import ComparisonDirectory
from bosch.compare.report import write_report
from bosch.compare.settings import CompareSettings
from bosch.cost import Cost
from bosch.counting import CountingScorer
from bosch.experiment.directory import make_directory, open_directory
from bosch.experiment.opening import Experiment, open_experiment, score_row
from bosch.files import write_json
from bosch.heads import HeadMask
from bosch.provenance import provenance
from bosch.selectors import SELECTORS
from bosch.selectors.static import Measured

CHANCE = ("random", "rand")
"""Methods that look at nothing: they are run with several seeds, and their mean and spread are shown."""


def compare(settings: CompareSettings, output: Path, *, overwrite: bool = False) -> ComparisonDirectory:
    """Compare methods; the same call on the same directory goes on where it was stopped.

    Everything that takes long is kept as it is measured: evaluations in the journals, unit scores in `unit_scores/`. A
    resumed comparison runs again from its start, and finds what it knows.

    Args:
        settings: everything that determines the result.
        output: the comparison's directory.
        overwrite: replace another comparison that is there.

    Returns:
        The directory: `rows.json`, `rows.csv`, `masks/`, `unit_scores/`, both journals, `report.md` and a picture.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    settings.haystack_text()  # what is wrong with it is said before a directory is made
    directory = ComparisonDirectory(output)
    open_directory(directory, settings, overwrite=overwrite)
    with open_experiment(settings, directory) as experiment:
        make_directory(directory.path_masks)
        rows: list[dict[str, Any]] = []
        for row in _rows(experiment, settings, directory):
            rows.append(row)
            facts = {**experiment.facts, "heldout": experiment.describe_heldout(), **provenance()}
            write_json(directory.rows, {"facts": facts, "rows": rows})
        write_report(directory, settings, rows, experiment.describe_heldout())
    return directory


def _rows(
    experiment: Experiment, settings: CompareSettings, directory: ComparisonDirectory
) -> Iterator[dict[str, Any]]:
    """One row a mask: the original and the all-sliding model first."""
    experiment.progress.on_stage("original and all sliding", 4)
    for name, mask in (("original", experiment.evaluator.full), ("all sliding", experiment.evaluator.sliding)):
        yield _row(experiment, name, mask, None, Cost(0, 0.0, 0.0))
    measured = experiment.measure(settings.chosen_methods)
    for method in settings.chosen_methods:
        for ratio in settings.ratios:
            for number in range(settings.seeds if method in CHANCE else 1):
                seed = settings.seed + number
                mask, cost = _select(experiment, settings, measured, method, ratio, seed)
                shown = seed if method in CHANCE else None
                origin = {"settings": {**dataclasses.asdict(settings), "method": method}, **experiment.facts}
                mask.save(directory.mask(method, ratio, shown), {**origin, **provenance()})
                yield _row(experiment, method, mask, shown, cost)


def _select(
    experiment: Experiment,
    settings: CompareSettings,
    measured: dict[str, Measured],
    method: str,
    ratio: float,
    seed: int,
) -> tuple[HeadMask, Cost]:
    problem = experiment.problem(measured)
    selection = SELECTORS[method](
        problem,
        ratio,
        budget=settings.evaluations_per_layer(method, problem.layout),
        seed=seed,
        on_stage=lambda stage, planned: experiment.progress.on_stage(f"{method} at {ratio}: {stage}", planned),
    )
    scorer = problem.objective.scorer
    assert isinstance(scorer, CountingScorer)
    cost = scorer.cost(scorer.asked)
    return selection.mask, cost + measured[method].cost if method in measured else cost


def _row(experiment: Experiment, name: str, mask: HeadMask, seed: int | None, cost: Cost) -> dict[str, Any]:
    scores = score_row(name, mask, calibration=experiment.evaluator, heldout=experiment.judge)
    return {**scores, "seed": seed, "cost": dataclasses.asdict(cost)}

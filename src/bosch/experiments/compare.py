"""Every method at every ratio, scored on the same held-out examples."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.common.files import as_written_by, read_json, write_json
from bosch.common.output import RowsDirectory, make_directory
from bosch.common.provenance import provenance
from bosch.common.tables import html_table
from bosch.experiments.compare_report import Row, compared, ratio_table, scores_figure, write_report
from bosch.experiments.experiment import Experiment, Given, open_experiment
from bosch.experiments.settings import CompareSettings
from bosch.heads import HeadMask
from bosch.runs import ExperimentDirectory
from bosch.scoring.objective import Cost
from bosch.selectors import Method, make_method
from bosch.selectors.method import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class ComparisonDirectory(ExperimentDirectory, RowsDirectory):
    """Where a comparison keeps everything it makes."""

    schema = "bosch.comparison/1"
    called = "comparison"
    results = (
        "report.md",
        "rows.json",
        "rows.csv",
        "compare.png",
        "compare.svg",
        "heldout.jsonl",
        "journal.jsonl",
        "masks",
        "unit_scores",
    )

    def mask(self, method: str, ratio: float, seed: int | None) -> Path:
        """The mask of one method at one ratio; with a seed where the method is pure chance."""
        return self.masks / f"{method}@{ratio}{'' if seed is None else f'.seed{seed}'}.json"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What a comparison found. In a terminal it prints as its tables, in a notebook also as its picture.

    Args:
        rows: one a mask: scores and cost, as in `rows.json`.
        masks: by method, ratio and seed (None but for methods that are pure chance).
        directory: where everything lies; None where nothing was written.
    """

    rows: tuple[Row, ...]
    masks: Mapping[tuple[str, float, int | None], HeadMask]
    directory: ComparisonDirectory | None = None

    def table(self) -> str:
        """A Markdown table for each ratio, the best method first."""
        return "\n".join(compared(self.rows))

    def plot(self) -> "Figure":
        """Held-out accuracy and NLL against the ratio, a line a method."""
        return scores_figure(self.rows)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        ratios = sorted({row["ratio"] for row in self.rows if row["name"] not in ENDS})
        pictures = [None] * (len(ratios) - 1) + [self.plot()]
        shown = zip(ratios, pictures, strict=True)
        return "".join(
            html_table(f"ratio {ratio:.3f}", ratio_table(self.rows, ratio), picture) for ratio, picture in shown
        )


def compare(
    settings: CompareSettings, output: Path | None = None, *, given: Given | None = None, overwrite: bool = False
) -> Comparison:
    """Compare methods; with an output directory, the same call goes on where it was stopped.

    Everything that takes long is kept there as it is measured: evaluations in the journals, unit scores in
    `unit_scores/`. A resumed comparison runs again from its start, and finds what it knows.

    Args:
        settings: everything that determines the result.
        output: the comparison's directory, in which everything is kept; None: nothing is written.
        given: what need not be loaded or made.
        overwrite: replace another comparison that is there.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    directory = None if output is None else ComparisonDirectory(output)
    methods = [make_method(name) for name in settings.chosen_methods]
    with open_experiment(settings, directory, given or Given(), overwrite=overwrite) as experiment:
        if directory and directory.is_finished:  # and of this very model and these very examples, as the journals say
            return read_comparison(directory)
        rows: list[dict[str, Any]] = []
        masks: dict[tuple[str, float, int | None], HeadMask] = {}
        for row, mask in _rows(experiment, settings, methods):
            rows.append(row)
            if row["name"] not in ENDS:
                masks[row["name"], row["target"], row["seed"]] = mask
            if directory:
                _save(experiment, settings, directory, rows, mask)
        if directory:
            write_report(directory.path, settings, rows, experiment.describe_heldout())
    return Comparison(tuple(rows), masks, directory)


def read_comparison(directory: ComparisonDirectory) -> Comparison:
    """What a finished comparison left in its directory.

    Raises:
        BoschError: a file is not what a comparison writes.
    """
    data = read_json(directory.rows)
    with as_written_by("a comparison", directory.rows):
        rows = tuple(data["rows"])
        chosen = [(row["name"], row["target"], row["seed"]) for row in rows if row["name"] not in ENDS]
        masks = {one: HeadMask.load(directory.mask(*one)) for one in chosen}
        found = Comparison(rows, masks, directory)
        found.table()
    return found


ENDS = ("original", "all sliding")


def _save(
    experiment: Experiment,
    settings: CompareSettings,
    directory: ComparisonDirectory,
    rows: list[dict[str, Any]],
    mask: HeadMask,
) -> None:
    """The newest row's mask, then all rows."""
    row, origin = rows[-1], {**experiment.facts, **provenance()}
    if row["name"] not in ENDS:
        make_directory(directory.masks)
        asked = {**dataclasses.asdict(settings), "method": row["name"]}
        mask.save(directory.mask(row["name"], row["target"], row["seed"]), {"settings": asked, **origin})
    write_json(
        directory.rows,
        {"facts": {**origin, "heldout": experiment.describe_heldout()}, "rows": rows},
    )


def _rows(
    experiment: Experiment, settings: CompareSettings, methods: list[Method]
) -> Iterator[tuple[dict[str, Any], HeadMask]]:
    """One row a mask, and the mask: the original and the all-sliding model first."""
    experiment.progress.on_stage("original and all sliding", 4)
    for name, mask in zip(ENDS, (experiment.evaluator.full, experiment.evaluator.sliding), strict=True):
        yield _row(experiment, name, None, mask, None, Cost(0, 0.0, 0.0)), mask
    measured = experiment.measure(methods)
    for method in methods:
        for ratio in settings.ratios:
            for number in range(settings.seeds if method.is_random else 1):
                seed = settings.seed + number
                mask, cost = _select(experiment, settings, measured, method, ratio, seed)
                yield _row(experiment, method.name, ratio, mask, seed if method.is_random else None, cost), mask


def _select(
    experiment: Experiment,
    settings: CompareSettings,
    measured: Mapping[str, Measured],
    method: Method,
    ratio: float,
    seed: int,
) -> tuple[HeadMask, Cost]:
    problem = experiment.problem(measured)
    selection = method.select(
        problem,
        ratio,
        budget=settings.evaluations_per_layer(method, problem.layout),
        seed=seed,
        on_stage=lambda stage, planned: experiment.progress.on_stage(f"{method.name} at {ratio}: {stage}", planned),
    )
    cost = problem.objective.cost()
    return selection.mask, cost + measured[method.name].cost if method.name in measured else cost


def _row(
    experiment: Experiment, name: str, target: float | None, mask: HeadMask, seed: int | None, cost: Cost
) -> dict[str, Any]:
    """A row of `rows.json`: `target` is the ratio that was asked for, `ratio` that of the mask."""
    return {**experiment.score_row(name, mask), "target": target, "seed": seed, "cost": dataclasses.asdict(cost)}

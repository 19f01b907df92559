"""Tables and pictures of needles: tasks and averages at each length, as the paper has them (B.6), depth against
length."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from bosch.common.pictures import ABSENT, save_figure
from bosch.common.tables import text_table, wilson
from bosch.evaluation.needles import FIRST, GENERATED, NLL, TEACHER_FORCED
from bosch.evaluation.results import LIMITED_NOTE, NIAH, SuiteResult, TaskResult
from bosch.evaluation.rows import EvalRows, Row

MEASURES = {TEACHER_FORCED: "teacher-forced", GENERATED: "generated", FIRST: "generated, first value"}
"""Scores that are shares of examples, and what a table calls them."""


def needle_tables(rows: EvalRows) -> list[str]:
    """For each measure that there is: a table for each length, and one over all lengths."""
    lines = []
    reach = {name: model["reach"] for name, model in rows.models.items()}
    for measure, words in MEASURES.items():
        found = [row for row in rows.of("niah") if measure in row.scores]
        lengths = list(dict.fromkeys(row.length for row in found))
        for length in lengths:
            lines += [f"## Needles at {length} tokens, {words}", ""]
            lines += [*_at_length([row for row in found if row.length == length], measure, reach), ""]
        if len(lengths) > 1:
            lines += [f"## Needles at all lengths, {words}", "", *_over_lengths(found, measure), ""]
    return [*lines, LIMITED_NOTE, ""] if any(row.is_limited for row in rows.of("niah")) else lines


def suite_result(rows: Sequence[Row], measure: str) -> SuiteResult:
    """One model's results at one length."""
    results = (TaskResult(row.task, row.scores[measure], row.num_examples, row.is_limited) for row in rows)
    return SuiteResult(NIAH, rows[0].target, tuple(results))


def by_target(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each model."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.target, []).append(row)
    return groups


def _at_length(rows: Sequence[Row], measure: str, reach: Mapping[str, int | None]) -> list[str]:
    tasks = [task for task in NIAH.tasks if any(row.task == task for row in rows)]
    results = [suite_result(found, measure) for found in by_target(rows).values()]
    categories = [
        name for name in NIAH.categories if any(result.category_score(name) is not None for result in results)
    ]
    means = [*categories, "total"] if len(categories) == len(NIAH.categories) else categories
    with_nll = measure == TEACHER_FORCED and all(NLL in row.scores for row in rows)
    header = [
        "model",
        *(task.removeprefix("niah_") for task in tasks),
        *means,
        "95 %",
        *["NLL"] * with_nll,
        "beyond reach",
    ]
    cells = []
    for result, found in zip(results, by_target(rows).values(), strict=True):
        scores = [result.by_task[task].score if task in result.by_task else None for task in tasks]
        averages = [result.category_score(name) for name in categories]
        averages += [result.overall_score] if "total" in means else []
        counts = [one.num_examples for one in result.tasks]
        pooled = sum(one.score * one.num_examples for one in result.tasks) / sum(counts)
        low, high = wilson(pooled, sum(counts))
        nll = [f"{fmean(row.scores[NLL] for row in found):.3f}"] if with_nll else []
        shown = [_percent(score, result.is_limited()) for score in (*scores, *averages)]
        cells.append(
            [result.model, *shown, f"{100 * low:.0f}-{100 * high:.0f}", *nll, _share_beyond(found, reach[result.model])]
        )
    return text_table(header, cells)


def _share_beyond(rows: Sequence[Row], reach: int | None) -> str:
    """Share of the needles that lie further back than a model sees if all its heads slide; only these test which do."""
    distances = [example["distance"] for row in rows for example in row.examples]
    if reach is None or not distances:
        return ""
    return f"{sum(distance > reach for distance in distances) / len(distances):.0%}"


def _over_lengths(rows: Sequence[Row], measure: str) -> list[str]:
    """The mean over the tasks at each length, and over all lengths."""
    lengths = sorted({row.length for row in rows if row.length is not None})
    cells = []
    for target, found in by_target(rows).items():
        means = [mean_at(found, length, measure) for length in lengths]
        known = [mean for mean in means if mean is not None]
        average = fmean(known) if len(known) == len(lengths) else None
        limited = any(row.is_limited for row in found)
        cells.append([target, *(_percent(mean, limited) for mean in (*means, average))])
    return text_table(["model", *map(str, lengths), "average"], cells)


def mean_at(rows: Sequence[Row], length: int, measure: str) -> float | None:
    """Unweighted mean over the tasks of one model at one length; None where there are none."""
    scores = [row.scores[measure] for row in rows if row.length == length and measure in row.scores]
    return fmean(scores) if scores else None


def _percent(score: float | None, is_limited: bool) -> str:
    return "-" if score is None else f"{100 * score:.1f}" + "\\*" * is_limited


NUM_DEPTHS = 10
"""Rows of a heat map, of equal height."""

Curves = Mapping[str, Mapping[int, float]]


def draw_needles(rows: EvalRows, directory: Path) -> list[tuple[str, Path]]:
    """Draw everything there is of needles.

    Args:
        rows: some of needles.
        directory: for the files, whose names begin with "eval-".

    Returns:
        Title and file of each picture.
    """
    found = rows.of("niah")
    measures = [measure for measure in MEASURES if any(measure in row.scores for row in found)]
    pictures = []
    if len({row.length for row in found}) > 1:
        _draw_means(
            "length, tokens", {measure: _by_length(found, measure) for measure in measures}, directory / "eval-lengths"
        )
        pictures.append(("means of the needle tasks against the length", directory / "eval-lengths.png"))
    swept = {measure: _by_window(rows, measure) for measure in measures}
    if any(len(curve) > 1 for curves in swept.values() for curve in curves.values()):
        _draw_means("window, tokens", swept, directory / "eval-windows")
        pictures.append(("means of the needle tasks against the window", directory / "eval-windows.png"))
    for number, (target, own) in enumerate(by_target(found).items()):
        if any(row.examples for row in own):
            path = directory / f"eval-depths-{number}-{_file_name(target)}"
            _draw_depths(target, own, measures, path)
            pictures.append((f"{target}: depth of the needle against the length", path.with_name(f"{path.name}.png")))
    return pictures


def depth_table(rows: Sequence[Row], measure: str) -> tuple[list[int], list[list[float | None]]]:
    """Share of examples answered at each depth and length, over all tasks.

    Args:
        rows: of one model.
        measure: which answer counts.

    Returns:
        The lengths, ascending; and for each tenth of the depth, the shallowest first, a value for each length, None
        where no example lies there.
    """
    lengths = sorted({row.length for row in rows if row.length is not None})
    hits: dict[tuple[int, int], list[bool]] = {}
    for row in rows:
        for example in row.examples:
            if row.length is not None and measure in example:
                depth = min(int(example["depth"] * NUM_DEPTHS), NUM_DEPTHS - 1)
                hits.setdefault((depth, row.length), []).append(example[measure])
    cells = [[hits.get((depth, length)) for length in lengths] for depth in range(NUM_DEPTHS)]
    return lengths, [[fmean(cell) if cell else None for cell in line] for line in cells]


def _file_name(target: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", target)[:60]


def _draw_depths(target: str, rows: Sequence[Row], measures: Sequence[str], path: Path) -> None:
    tables = {measure: depth_table(rows, measure) for measure in measures}
    width = max(len(lengths) for lengths, _ in tables.values())
    figure = Figure(figsize=(len(tables) * (1.6 + 0.75 * width) + 1.2, 4.4), layout="constrained")
    panels = figure.subplots(1, len(tables), squeeze=False)[0]
    for axes, (measure, (lengths, table)) in zip(panels, tables.items(), strict=True):
        mesh = _draw_table(axes, lengths, table)
        axes.set_title(MEASURES[measure], fontsize=10)
    panels[0].set_ylabel("depth of the needle, % of the prompt")
    bar = figure.colorbar(mesh, ax=panels, shrink=0.8)
    bar.set_label("share answered")
    figure.suptitle(target, fontsize=11, parse_math=False)
    save_figure(figure, path)


def _draw_table(axes: Axes, lengths: Sequence[int], table: Sequence[Sequence[float | None]]) -> QuadMesh:
    shown = [[float("nan") if value is None else value for value in line] for line in table]
    colours = colormaps["RdYlGn"].with_extremes(bad=ABSENT)
    axes.set_facecolor(ABSENT)
    mesh = axes.pcolormesh(shown, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    axes.invert_yaxis()
    axes.set_yticks(
        [depth + 0.5 for depth in range(NUM_DEPTHS)], [f"{10 * depth}-{10 * depth + 10}" for depth in range(NUM_DEPTHS)]
    )
    axes.set_xticks([column + 0.5 for column in range(len(lengths))], [str(length) for length in lengths])
    axes.set_xlabel("length, tokens")
    axes.spines[:].set_visible(False)
    for row, line in enumerate(table):
        for column, value in enumerate(line):
            if value is not None:
                axes.text(column + 0.5, row + 0.5, f"{100 * value:.0f}", ha="center", va="center", fontsize=8)
    return mesh


def _by_length(rows: Sequence[Row], measure: str) -> Curves:
    """Means of each model by length."""
    lengths = sorted({row.length for row in rows if row.length is not None})
    means = {
        target: {length: mean_at(own, length, measure) for length in lengths} for target, own in by_target(rows).items()
    }
    return {target: _known(curve) for target, curve in means.items()}


def _by_window(rows: EvalRows, measure: str) -> Curves:
    """Means of each hybrid at each length by window; the windows of one hybrid are one curve."""
    curves: dict[str, dict[int, float | None]] = {}
    for target, own in by_target(rows.of("niah")).items():
        window = rows.models[target]["window"]
        if window is not None:
            for length in sorted({row.length for row in own if row.length is not None}):
                name = f"{target.removesuffix(f', W = {window}')} @ {length}"
                curves.setdefault(name, {})[window] = mean_at(own, length, measure)
    return {name: _known(curve) for name, curve in curves.items()}


def _known(curve: Mapping[int, float | None]) -> dict[int, float]:
    return {x: y for x, y in curve.items() if y is not None}


def _draw_means(label: str, curves_of: Mapping[str, Curves], path: Path) -> None:
    figure = Figure(figsize=(5.2 * len(curves_of) + 2, 4.2), layout="constrained")
    panels = figure.subplots(1, len(curves_of), squeeze=False)[0]
    colors = colormaps["tab20"].colors  # type: ignore[attr-defined]
    for axes, (measure, curves) in zip(panels, curves_of.items(), strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            style = {"color": colors[number % 20], "marker": "o^sDv"[number // 4 % 5], "markersize": 4}
            xs = sorted(curve)
            axes.plot(xs, [100 * curve[x] for x in xs], label=name.replace("$", r"\$"), linewidth=1.4, **style)
        ticks = sorted({x for curve in curves.values() for x in curve})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, list(map(str, ticks)))
        axes.set_ylim(-3, 103)
        axes.set_xlabel(label)
        axes.set_title(MEASURES[measure], fontsize=10)
    panels[0].set_ylabel("mean over the needle tasks, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    save_figure(figure, path)

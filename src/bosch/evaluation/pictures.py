"""Pictures of needles: depth against length for each model, and the means of all models beside each other."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from bosch.evaluation.needle_report import MEASURES, by_target, mean_at
from bosch.evaluation.rows import Row, Rows
from bosch.pictures import ABSENT, save_figure

NUM_DEPTHS = 10
"""Rows of a heat map, of equal height."""

Curves = Mapping[str, Mapping[int, float]]


def draw_needles(rows: Rows, directory: Path) -> list[tuple[str, Path]]:
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


def _by_window(rows: Rows, measure: str) -> Curves:
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

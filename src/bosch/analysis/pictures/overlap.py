"""Heat map of distances between masks, one model in each triangle (paper, Figures 2, 7 and 8)."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap

from bosch.analysis.overlap import Matrix
from bosch.analysis.pictures.style import label_ticks, new_figure
from bosch.pictures import ABSENT, FULL, save_figure

DISTANCE_COLOURS = LinearSegmentedColormap.from_list("distance", ["#f7f3ec", "#9db8d2", FULL, "#16324f"])
MOST_WITH_NUMBERS = 24


@dataclasses.dataclass(frozen=True)
class Panel:
    """One heat map.

    Args:
        title: above it.
        names: of the masks, in the order of the rows.
        distances: from 0 to 1; what is on the diagonal is not shown.
    """

    title: str
    names: tuple[str, ...]
    distances: Matrix


def draw_overlap(panels: Sequence[Panel], caption: str, path: Path) -> None:
    """Draw one or more heat maps beside and below each other, with one colour scale.

    Args:
        panels: at least one.
        caption: one line below them all.
        path: without an ending.
    """
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    side = max(_side(panel) for panel in panels)
    figure = new_figure(columns * side + 1.1, rows * (side + 0.4) + 0.4)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid.flat, panels, strict=False):
        mesh = _draw_panel(axes, panel)
    bar = figure.colorbar(mesh, ax=grid, shrink=0.8, aspect=30)
    bar.set_label("Jaccard distance of the sliding units")
    bar.outline.set_visible(False)
    figure.supxlabel(caption, fontsize=9, parse_math=False)
    save_figure(figure, path)


def _side(panel: Panel) -> float:
    """Inches of a panel with its names."""
    size = len(panel.names)
    cell = 0.5 if size <= MOST_WITH_NUMBERS else 0.22
    return max(3.0, cell * size + 0.08 * max(map(len, panel.names)) + 0.2)


def _draw_panel(axes: Axes, panel: Panel) -> QuadMesh:
    size = len(panel.names)
    shown = [[math.nan if i == j else panel.distances[i][j] for j in range(size)] for i in range(size)]
    colours = DISTANCE_COLOURS.with_extremes(bad=ABSENT)
    axes.set_facecolor(ABSENT)
    mesh = axes.pcolormesh(shown, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    label_ticks(axes, "x", panel.names, rotation=45, ha="right", rotation_mode="anchor")
    label_ticks(axes, "y", panel.names)
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title, fontsize=10, parse_math=False)
    if size <= MOST_WITH_NUMBERS:
        for i, j in ((i, j) for i in range(size) for j in range(size) if i != j):
            value = panel.distances[i][j]
            colour = "white" if value > 0.55 else "black"
            axes.text(j + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    return mesh

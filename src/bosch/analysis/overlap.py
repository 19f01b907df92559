"""How far apart the choices of two methods are: the Jaccard distance of the sets of units that slide (paper 4.2)."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap

from bosch.common.files import write_json
from bosch.common.output import AnalysisDirectory
from bosch.common.pictures import ABSENT, FULL, label_ticks, new_figure, save_figure
from bosch.common.tables import text_table, write_csv
from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit
from bosch.runs import MaskFile, by_ratio, model_name, name_masks
from bosch.version import __version__

Matrix = tuple[tuple[float, ...], ...]
"""Square; row and column i belong to the i-th mask."""


def jaccard_distance(first: HeadMask, second: HeadMask) -> float:
    """1 - |A & B| / |A | B| for the units A and B that slide, from 0 (the same units) to 1 (none in common).

    Two masks that localize nothing are the same choice: their distance is 0. Window and sinks play no part.

    Raises:
        BoschError: the masks are of different layouts.
    """
    return distance_matrix([first, second])[0][1]


def distance_matrix(masks: Sequence[HeadMask]) -> Matrix:
    """Jaccard distances between all pairs of masks: symmetric, 0 on the diagonal.

    Raises:
        BoschError: the masks are of different layouts.
    """
    for mask in masks:
        if mask.layout != masks[0].layout:
            raise BoschError(
                f"masks of different models cannot be compared: one has {masks[0].layout}, another {mask.layout}"
            )
    chosen = [mask.localized for mask in masks]
    return tuple(tuple(_distance(row, column) for column in chosen) for row in chosen)


def chance_distance(num_units: int, first: int, second: int) -> float:
    """Mean Jaccard distance of two random masks that localize so many of the units: what a distance is to be read
    against, for it depends on the ratio alone.

    Args:
        num_units: N, units of the model.
        first, second: units that the one and the other mask localize, at most N each.
    """
    mean = 0.0
    for shared in range(max(0, first + second - num_units), min(first, second) + 1):
        ways = math.comb(first, shared) * math.comb(num_units - first, second - shared)
        mean += ways / math.comb(num_units, second) * _distance_by_count(shared, first + second - shared)
    return mean


def _distance(first: frozenset[Unit], second: frozenset[Unit]) -> float:
    return _distance_by_count(len(first & second), len(first | second))


def _distance_by_count(shared: int, united: int) -> float:
    return 1 - shared / united if united else 0.0


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


OVERLAP_SCHEMA = "bosch.overlap/1"

Masks = Mapping[str, HeadMask]


@dataclasses.dataclass(frozen=True)
class Model:
    """The masks of one model.

    Args:
        name: of the model.
        groups: masks by name, one group a heat map.
    """

    name: str
    groups: tuple[Masks, ...]


def write_overlap(
    lower: Sequence[MaskFile],
    upper: Sequence[MaskFile],
    directory: Path,
    *,
    split_by_ratio: bool = False,
    overwrite: bool = False,
) -> str:
    """Write the distances as JSON and CSV, and the heat map.

    Args:
        lower: masks of one model.
        upper: masks of the same names of another model, for the upper triangle; none to show one model in both.
        directory: where to.
        split_by_ratio: one heat map for each ratio, in place of one for all masks.
        overwrite: replace another analysis that is there.

    Returns:
        The heat maps as tables.

    Raises:
        BoschError: fewer than two masks in a heat map, names or ratios of the two models that do not match, or files
            that are there already.
    """
    first = _group(lower, split_by_ratio)
    second = _align(first, _group(upper, split_by_ratio)) if upper else first
    for group in first.groups:
        if len(group) < 2:
            raise BoschError(f"a distance needs two masks, got only {', '.join(group)}")
    models = [("lower", first), ("upper", second)] if upper else [("both", first)]
    data = _data(models)
    panels = [_make_panel(a, b) for a, b in zip(first.groups, second.groups, strict=True)]
    caption = f"lower triangle: {first.name}; upper triangle: {second.name}" if upper else first.name
    header = ("triangle", "model", "first", "first_ratio", "second", "second_ratio", "distance")
    rows = [row for triangle, model in models for row in _rows(triangle, model)]
    with AnalysisDirectory(directory).claimed({"analysis": "overlap", **data}, overwrite=overwrite) as claim:
        claim.begin()
        write_json(directory / "overlap.json", {**data, "bosch": __version__})
        write_csv(directory / "overlap.csv", header, rows)
        draw_overlap(panels, caption, directory / "overlap")
    return "\n\n".join([caption, *map(_table, panels)])


def _group(files: Sequence[MaskFile], split_by_ratio: bool) -> Model:
    groups = by_ratio(files) if split_by_ratio else [files]
    return Model(model_name(files), tuple(name_masks(group) for group in groups))


def _align(first: Model, second: Model) -> Model:
    """The second model's masks in the order of the first's.

    Raises:
        BoschError: they are not the same methods at as many ratios.
    """
    if len(first.groups) != len(second.groups):
        raise BoschError(
            f"the two triangles need masks at as many ratios; the lower has {len(first.groups)}, "
            f"the upper {len(second.groups)}"
        )
    for below, above in zip(first.groups, second.groups, strict=True):
        if below.keys() != above.keys():
            raise BoschError(
                f"the two triangles need masks of the same names; the lower has {', '.join(below)}, "
                f"the upper {', '.join(above)}"
            )
    groups = ({name: above[name] for name in below} for below, above in zip(first.groups, second.groups, strict=True))
    return Model(second.name, tuple(groups))


def _data(models: Sequence[tuple[str, Model]]) -> dict[str, Any]:
    return {
        "schema": OVERLAP_SCHEMA,
        "triangles": [
            {"triangle": triangle, "model": model.name, "groups": [_group_data(group) for group in model.groups]}
            for triangle, model in models
        ],
    }


def _group_data(group: Masks) -> dict[str, Any]:
    masks = [
        {"name": name, "ratio": mask.ratio, "window": mask.shown_window, "sinks": mask.sinks, "mask": mask.key()}
        for name, mask in group.items()
    ]
    return {"masks": masks, "distances": distance_matrix(list(group.values())), "chance": _chance(group)}


def _rows(triangle: str, model: Model) -> list[tuple[str | float, ...]]:
    rows: list[tuple[str | float, ...]] = []
    for group in model.groups:
        distances = distance_matrix(list(group.values()))
        for (i, (first, a)), (j, (second, b)) in itertools.combinations(enumerate(group.items()), 2):
            rows.append((triangle, model.name, first, a.ratio, second, b.ratio, distances[i][j]))
    return rows


def _make_panel(lower: Masks, upper: Masks) -> Panel:
    below, above = distance_matrix(list(lower.values())), distance_matrix(list(upper.values()))
    distances: Matrix = tuple(
        tuple(above[i][j] if i < j else below[i][j] for j in range(len(below))) for i in range(len(below))
    )
    return Panel(_title(lower, upper), tuple(lower), distances)


def _title(lower: Masks, upper: Masks) -> str:
    """Ratio of the masks, and what two random ones of that ratio would have between them; nothing for mixed ratios."""
    chances = [chance for group in (lower, upper) if (chance := _chance(group)) is not None]
    if len(chances) < 2:
        return ""
    ratios = [f"{next(iter(group.values())).ratio:.3g}" for group in (lower, upper)]
    by_chance = [f"{chance:.2f}" for chance in chances]
    return f"ratio {' / '.join(dict.fromkeys(ratios))} (random masks: {' / '.join(dict.fromkeys(by_chance))})"


def _chance(group: Masks) -> float | None:
    sizes = {mask.num_localized for mask in group.values()}
    if len(sizes) > 1:
        return None
    (size,) = sizes
    return chance_distance(next(iter(group.values())).layout.num_units, size, size)


def _table(panel: Panel) -> str:
    rows = [
        [name, *("" if i == j else f"{panel.distances[i][j]:.2f}" for j in range(len(panel.names)))]
        for i, name in enumerate(panel.names)
    ]
    return "\n".join(text_table([panel.title, *panel.names], rows))

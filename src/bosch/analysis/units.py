"""Which layers and which KV heads each mask localizes."""

import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.patches import Patch

from bosch.common.files import write_json
from bosch.common.output import AnalysisDirectory
from bosch.common.pictures import ABSENT, FULL, SLIDING, label_ticks, new_figure, number_ticks, save_figure
from bosch.common.tables import text_table, write_csv
from bosch.heads import HeadMask, Unit
from bosch.version import __version__


def share_per_layer(mask: HeadMask) -> tuple[float | None, ...]:
    """For each layer, the share of its units that slide; None for a layer without units."""
    counts = zip(mask.localized_per_layer, mask.layout.units_per_layer, strict=True)
    return tuple(sliding / units if units else None for sliding, units in counts)


def votes(masks: Mapping[str, HeadMask]) -> dict[Unit, int]:
    """For each unit, how many of the masks localize it. All masks are of one layout, and there is at least one."""
    layout = next(iter(masks.values())).layout
    return {unit: sum(not mask[unit] for mask in masks.values()) for unit in layout.units()}


SHARE_COLOURS = LinearSegmentedColormap.from_list("share", [FULL, "#f7f3ec", SLIDING])
MOST_IN_A_ROW = 8


def draw_layers(masks: Mapping[str, HeadMask], path: Path) -> None:
    """Masks by layers: the colour says which share of a layer's units slides, the number how many.

    Args:
        masks: by name, of one layout; at least one.
        path: without an ending.
    """
    num_layers = next(iter(masks.values())).layout.num_layers
    shares = [[math.nan if s is None else s for s in share_per_layer(mask)] for mask in masks.values()]
    longest = max(map(len, masks))
    figure = new_figure(1.9 + 0.08 * longest + 0.27 * num_layers, 1.1 + 0.3 * len(masks))
    axes = figure.subplots()
    axes.set_facecolor(ABSENT)
    mesh = axes.pcolormesh(shares, cmap=SHARE_COLOURS, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    for row, mask in enumerate(masks.values()):
        for layer, (count, units) in enumerate(zip(mask.localized_per_layer, mask.layout.units_per_layer, strict=True)):
            if units:
                colour = "white" if count / units < 0.2 else "black"
                axes.text(layer + 0.5, row + 0.5, str(count), ha="center", va="center", fontsize=7, color=colour)
    axes.invert_yaxis()
    label_ticks(axes, "y", list(masks))
    number_ticks(axes, "x", num_layers, 60)
    axes.set_xlabel("layer")
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(mesh, ax=axes, aspect=12, pad=0.01, ticks=[0, 0.5, 1])
    bar.set_label("share sliding")
    bar.outline.set_visible(False)
    save_figure(figure, path)


def draw_units(masks: Mapping[str, HeadMask], path: Path) -> None:
    """A panel for each mask, layers upwards: blue full, orange sliding, grey not eligible.

    Args:
        masks: by name, of one layout; at least one.
        path: without an ending.
    """
    layout = next(iter(masks.values())).layout
    rows = math.ceil(len(masks) / MOST_IN_A_ROW)
    columns = math.ceil(len(masks) / rows)
    width = max(0.5 + 0.16 * max(layout.units_per_layer), 0.35 + 0.075 * max(map(len, masks)))
    figure = new_figure(0.6 + columns * width, 0.8 + rows * (0.5 + 0.13 * layout.num_layers))
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(masks) :]:
        axes.set_axis_off()
    for axes, (name, mask) in zip(grid.flat, masks.items(), strict=False):
        _draw_panel(axes, name, mask)
    figure.supxlabel("KV head", fontsize=9)
    figure.supylabel("layer", fontsize=9)
    shown = [Patch(color=FULL, label="full"), Patch(color=SLIDING, label="sliding")]
    figure.legend(handles=shown, loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    save_figure(figure, path)


def _draw_panel(axes: Axes, name: str, mask: HeadMask) -> None:
    width = max(mask.layout.units_per_layer)
    cells = [[2 if head >= len(row) else int(not row[head]) for head in range(width)] for row in mask.full]
    colours = ListedColormap([FULL, SLIDING, ABSENT])
    axes.pcolormesh(cells, cmap=colours, vmin=0, vmax=2, edgecolors="white", linewidth=0.6)
    number_ticks(axes, "x", width, 8)
    number_ticks(axes, "y", len(cells), 20)
    axes.spines[:].set_visible(False)
    axes.set_title(name, fontsize=8, parse_math=False)


UNITS_SCHEMA = "bosch.units/1"


def write_units(masks: Mapping[str, HeadMask], directory: Path, *, overwrite: bool = False) -> str:
    """Write every choice as JSON and CSV, the counts per layer as CSV, and a map of each.

    Args:
        masks: by name, of one layout; at least one.
        directory: where to.
        overwrite: replace another analysis that is there.

    Returns:
        The counts per layer as a table.

    Raises:
        BoschError: the files are there already.
    """
    counts = votes(masks)
    chosen = {
        name: {"ratio": mask.ratio, "per_layer": mask.localized_per_layer, "localized": sorted(mask.localized)}
        for name, mask in masks.items()
    }
    agreed = [[*unit, count] for unit, count in counts.items()]
    rows = ([*unit, *(int(not mask[unit]) for mask in masks.values()), count] for unit, count in counts.items())
    layers = layer_rows(masks)
    with AnalysisDirectory(directory).claimed({"analysis": "units", "masks": chosen}, overwrite=overwrite) as claim:
        claim.begin()
        write_json(
            directory / "units.json",
            {"schema": UNITS_SCHEMA, "bosch": __version__, "masks": chosen, "votes": agreed},
        )
        write_csv(directory / "units.csv", ["layer", "head", *masks, "votes"], rows)
        write_csv(directory / "layers.csv", ["layer", "units", *masks], layers)
        draw_layers(masks, directory / "layers")
        draw_units(masks, directory / "units")
    return "\n".join(text_table(["layer", "units", *masks], [[str(cell) for cell in row] for row in layers]))


def layer_rows(masks: Mapping[str, HeadMask]) -> list[tuple[int, ...]]:
    """For each layer its number, its units, and how many of them each mask localizes."""
    units = next(iter(masks.values())).layout.units_per_layer
    counts = zip(*(mask.localized_per_layer for mask in masks.values()), strict=True)
    return [(layer, units[layer], *row) for layer, row in enumerate(counts)]

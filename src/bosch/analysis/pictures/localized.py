"""Maps of which layers and which units each mask localizes."""

import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.patches import Patch

from bosch.analysis.localized import share_per_layer
from bosch.analysis.pictures.style import label_ticks, new_figure, number_ticks
from bosch.heads import HeadMask
from bosch.pictures import ABSENT, FULL, SLIDING, save_figure

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

"""What all pictures share: colours, size, labels of cells, and how they are written."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from bosch.common.files import write_bytes

FULL, SLIDING, ABSENT = "#2f5d8a", "#e08e45", "#eeeeee"
"""Colours of units: full attention, sliding, not eligible."""


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG to look at and as SVG to print, atomically; the path is without its suffix. The same figure
    gives the same bytes, whenever it is drawn."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # the layout, which would be made anew for each file
    figure.set_layout_engine("none")
    for kind, metadata in (("png", {}), ("svg", {"Date": None})):
        drawn = io.BytesIO()
        with rc_context({"svg.hashsalt": path.name}):
            figure.savefig(drawn, format=kind, dpi=120, metadata=metadata)
        write_bytes(path.with_name(f"{path.name}.{kind}"), drawn.getvalue())


LARGEST_INCHES = 60.0
"""Of a side; beyond about 65,000 pixels nothing can be drawn."""


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches, or of what can be drawn."""
    engine = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, compress=True)
    return Figure(figsize=(min(width, LARGEST_INCHES), min(height, LARGEST_INCHES)), layout=engine)


def label_ticks(axes: Axes, axis: Literal["x", "y"], names: Sequence[str], **text: Any) -> None:
    """Names at the middles of cells. They are shown as they are: a file's name may hold what would be a formula."""
    set_ticks = {"x": axes.set_xticks, "y": axes.set_yticks}[axis]
    set_ticks([i + 0.5 for i in range(len(names))], names, parse_math=False, **text)
    axes.tick_params(axis=axis, length=0)


def number_ticks(axes: Axes, axis: Literal["x", "y"], count: int, most: int) -> None:
    """Numbers from 0 at the middles of so many cells, but at most so many: else of every second, third, ... cell."""
    set_ticks = {"x": axes.set_xticks, "y": axes.set_yticks}[axis]
    shown = range(0, count, math.ceil(count / most))
    set_ticks([i + 0.5 for i in shown], [str(i) for i in shown], fontsize=7)
    axes.tick_params(axis=axis, length=0)

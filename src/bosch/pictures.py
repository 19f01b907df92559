"""What all pictures share."""

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bosch.files import write_bytes

FULL, SLIDING, ABSENT = "#2f5d8a", "#e08e45", "#eeeeee"
"""Colours of units: full attention, sliding, not eligible."""


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG to look at and as SVG to print, atomically; the path is without its suffix."""
    FigureCanvasAgg(figure)
    for kind in ("png", "svg"):
        drawn = io.BytesIO()
        figure.savefig(drawn, format=kind, dpi=120)
        write_bytes(path.with_name(f"{path.name}.{kind}"), drawn.getvalue())

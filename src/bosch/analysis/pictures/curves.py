"""Scores against tokens, a line a training (paper, Figure 3)."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.ticker import EngFormatter

from bosch.analysis.curves import Curve
from bosch.analysis.pictures.style import new_figure
from bosch.pictures import save_figure

PANELS = (("accuracy", "held-out accuracy"), ("nll", "held-out NLL, nats a token"))


def draw_curves(curves: Mapping[str, Curve], path: Path) -> None:
    """Two panels, accuracy and NLL; a dashed line is the model that a training began with, all its heads full.

    Args:
        curves: by name; at least one.
        path: without an ending.
    """
    figure = new_figure(9, 3.8)
    for axes, (score, label) in zip(figure.subplots(1, 2), PANELS, strict=True):
        for original in sorted({getattr(curve.original, score) for curve in curves.values()}):
            axes.axhline(original, color="black", linewidth=1, linestyle="--", label="original")
        for name, curve in curves.items():
            tokens = [point.tokens for point in curve.points]
            values = [getattr(point, score) for point in curve.points]
            # A name may hold what would be a formula.
            axes.plot(tokens, values, marker="o", markersize=3.5, linewidth=1.4, label=name.replace("$", r"\$"))
        axes.set_xlabel("tokens trained on")
        axes.set_ylabel(label)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylim(-0.03, 1.03)
    figure.axes[1].set_ylim(bottom=0)
    figure.axes[0].legend(fontsize=8, frameon=False)
    save_figure(figure, path)

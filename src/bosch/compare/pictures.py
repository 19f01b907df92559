"""Scores against the ratio, a line a method."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bosch.pictures import save_figure


def draw_scores(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Held-out accuracy and NLL of each method, between the original model and the all-sliding one (grey)."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, rows, "accuracy")
    _draw(right, rows, "nll")
    left.set_ylabel("held-out accuracy")
    left.set_ylim(-0.03, 1.03)
    right.set_ylabel("held-out NLL, nats a token")
    right.set_yscale("log")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    save_figure(figure, path)


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]], kind: str) -> None:
    curves: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        value = row["heldout"][kind]
        if row["name"] in ("original", "all sliding"):
            axes.axhline(value, color="grey", linewidth=0.8, linestyle="--" if row["name"] == "original" else ":")
        else:
            curves.setdefault(row["name"], {}).setdefault(row["ratio"], []).append(value)
    colors = colormaps["tab20"].colors  # type: ignore[attr-defined]
    for index, (name, curve) in enumerate(curves.items()):
        ratios = sorted(curve)
        style = {"color": colors[index % 20], "marker": "o^sDv"[index // 4 % 5], "markersize": 4}
        axes.plot(ratios, [fmean(curve[ratio]) for ratio in ratios], label=name, linewidth=1.4, **style)
    axes.set_xlabel("ratio of sliding KV heads")

"""Speed, memory and cache against the context length, a line a model (paper, Figures 5 and 6)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bosch.bench.rows import ORIGINAL, OUT_OF_MEMORY, Row
from bosch.pictures import save_figure

PANELS = (
    ("prefill_tokens_per_s", "prefill, tokens/s", 1),
    ("decode_tokens_per_s", "decoding, tokens/s", 1),
    ("peak_memory_bytes", "peak memory, MiB", 2**20),
    ("cache_bytes", "cache, MiB", 2**20),
)
"""What is drawn, its label, and its unit."""

WIDE_SPAN = 5
"""Largest over smallest value from which on a vertical axis is logarithmic; else it begins at 0."""


def draw_rows(rows: Sequence[Row], path: Path) -> None:
    """Four panels; crosses at the foot of a panel: out of memory.

    Args:
        rows: as in `rows.json`.
        path: of the picture, without its suffix.
    """
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    panels = figure.subplots(2, 2).flat
    for axes, (key, label, unit) in zip(panels, PANELS, strict=True):
        _draw(axes, rows, key, unit)
        axes.set_ylabel(label)
    handles, _ = axes.get_legend_handles_labels()
    if any(row["status"] == OUT_OF_MEMORY for row in rows):
        handles.append(Line2D([], [], color="grey", linestyle="", marker="x", label=OUT_OF_MEMORY))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save_figure(figure, path)


def _draw(axes: Axes, rows: Sequence[Row], key: str, unit: int) -> None:
    for number, (name, style) in enumerate(_styles(rows).items()):
        curve = [row for row in rows if row["name"] == name]
        measured = [row for row in curve if row["status"] != OUT_OF_MEMORY]
        contexts = [row["context"] for row in measured]
        axes.plot(contexts, [row[key] / unit for row in measured], label=name, linewidth=1.4, markersize=4, **style)
        missing = [row["context"] for row in curve if row["status"] == OUT_OF_MEMORY]
        if missing:  # an artist without points would spoil the layout
            foot = axes.get_xaxis_transform()
            height = 0.03 + 0.04 * number
            axes.plot(missing, [height] * len(missing), "x", color=style["color"], transform=foot)
    _scale(axes, [row[key] / unit for row in rows if row[key] is not None])
    contexts = sorted({row["context"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [_short(context) for context in contexts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("context, tokens")


def _styles(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The original is black; of the hybrids each ratio has a colour, each window a dash and a marker."""
    hybrids = {row["name"]: row for row in rows if row["name"] != ORIGINAL}
    ratios = sorted({row["ratio"] for row in hybrids.values()})
    windows = sorted({row["window"] for row in hybrids.values()})
    colors = colormaps["tab10"].colors  # type: ignore[attr-defined]
    styles = {ORIGINAL: {"color": "black", "marker": "."}}
    for name, row in hybrids.items():
        color, shape = colors[ratios.index(row["ratio"]) % 10], windows.index(row["window"])
        styles[name] = {"color": color, "marker": "o^sDv"[shape % 5], "linestyle": ("-", "--", ":", "-.")[shape % 4]}
    return styles


def _scale(axes: Axes, values: Sequence[float]) -> None:
    if not values or max(values) < WIDE_SPAN * min(values):
        axes.set_ylim(0, 1.06 * max(values, default=1))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _short(context: int) -> str:
    return str(context) if context % 1024 else f"{context // 1024}k"

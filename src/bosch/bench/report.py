"""A benchmark, told to people: a table a context length, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bosch.bench.rows import ORIGINAL, OUT_OF_MEMORY, BenchDirectory, BenchRows, Row
from bosch.bench.settings import WARM_UP_STEPS, BenchSettings
from bosch.common.files import write_text
from bosch.common.pictures import save_figure
from bosch.common.tables import text_table
from bosch.heads import HeadLayout

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


def write_report(directory: BenchDirectory, settings: BenchSettings, rows: BenchRows) -> None:
    """Write the picture and `report.md`.

    Args:
        directory: where to.
        settings: of the benchmark.
        rows: all of them.
    """
    draw_rows(rows.rows, directory.path / "bench")
    lines = [
        f"# {settings.model}: speed and memory of hybrids",
        "",
        _what(settings, rows),
        "",
        _which_slide(settings),
        "",
        *measured(rows.rows),
        "![speed, memory and cache against the context length](bench.png)",
        "",
        _how(settings, rows),
    ]
    write_text(directory.report, "\n".join(lines) + "\n")


def measured(rows: Sequence[Row]) -> list[str]:
    """A table for each context length, shortest first; in brackets the quotient by the original."""
    header = ["model", "prefill, tokens/s", "decoding, tokens/s", "peak memory", "cache"]
    lines = []
    for context in sorted({row["context"] for row in rows}):
        cells = [_cells(row) for row in rows if row["context"] == context]
        lines += [f"## Context of {context} tokens", "", *text_table(header, cells), ""]
    return lines


def _cells(row: Row) -> list[str]:
    if row["status"] == OUT_OF_MEMORY:
        return [row["name"], OUT_OF_MEMORY, "", "", ""]
    speeds = [_with_quotient(row, key, _speed(row[key])) for key in ("prefill_tokens_per_s", "decode_tokens_per_s")]
    sizes = [_with_quotient(row, key, _size(row[key])) for key in ("peak_memory_bytes", "cache_bytes")]
    return [row["name"], *speeds, *sizes]


def _with_quotient(row: Row, key: str, text: str) -> str:
    quotient = row["to_original"][key]
    return text if quotient is None else f"{text} ({quotient:.2f}x)"


def _speed(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def _size(num_bytes: float) -> str:
    if num_bytes < 2**20:
        return f"{num_bytes / 2**10:.1f} KiB"
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes < 2**30 else f"{num_bytes / 2**30:.2f} GiB"


def _what(settings: BenchSettings, rows: BenchRows) -> str:
    model, origin = rows.model, rows.provenance
    layout = HeadLayout(tuple(model["units_per_layer"]))
    weights = "random weights" if settings.random_weights else "its own weights"
    place = origin["gpu"] if model["device"].startswith("cuda") else f"threads: {model['num_threads']}"
    return (
        f"{model['class']} with {weights}: {model['parameters'] / 1e6:.1f} million parameters, {layout}, "
        f"{model['dtype']} on {model['device']} ({place}). bosch {origin['bosch']}, torch {origin['torch']}, "
        f"transformers {origin['transformers']}, {origin['platform']}."
    )


def _which_slide(settings: BenchSettings) -> str:
    if settings.mask is not None:
        return f"The units that slide are those of the mask {settings.mask}."
    return (
        f"Which units slide at a ratio was drawn at random (seed {settings.seed}): speed and memory depend on how many "
        "slide in each layer, and little on which."
    )


def _how(settings: BenchSettings, rows: BenchRows) -> str:
    memory = "memory allocated on the GPU" if rows.model["device"].startswith("cuda") else "resident memory"
    return (
        f"Batch size 1, random tokens. Prefill: the context, entered in chunks of {settings.chunk} tokens through the "
        f"cache. Decoding: the median of {settings.new_tokens} single tokens after it, {WARM_UP_STEPS} before them not "
        f"counted. Peak memory: the largest {memory} of the process meanwhile, weights included. Cache: bytes of its "
        "tensors after the prefill; those that grow have up to 1/64 of room. The original runs with transformers' own "
        f"{rows.model['attention']} attention and DynamicCache. A model that was out of memory was not tried at longer "
        "contexts."
    )

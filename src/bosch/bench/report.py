"""A benchmark, told to people: a table a context length, and a picture."""

from collections.abc import Sequence

from bosch.bench.directory import BenchDirectory
from bosch.bench.pictures import draw_rows
from bosch.bench.rows import OUT_OF_MEMORY, Row, Rows
from bosch.bench.settings import WARM_UP_STEPS, BenchSettings
from bosch.files import write_text
from bosch.heads import HeadLayout
from bosch.tables import text_table


def write_report(directory: BenchDirectory, settings: BenchSettings, rows: Rows) -> None:
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


def _what(settings: BenchSettings, rows: Rows) -> str:
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


def _how(settings: BenchSettings, rows: Rows) -> str:
    memory = "memory allocated on the GPU" if rows.model["device"].startswith("cuda") else "resident memory"
    return (
        f"Batch size 1, random tokens. Prefill: the context, entered in chunks of {settings.chunk} tokens through the "
        f"cache. Decoding: the median of {settings.new_tokens} single tokens after it, {WARM_UP_STEPS} before them not "
        f"counted. Peak memory: the largest {memory} of the process meanwhile, weights included. Cache: bytes of its "
        "tensors after the prefill; those that grow have up to 1/64 of room. The original runs with transformers' own "
        f"{rows.model['attention']} attention and DynamicCache. A model that was out of memory was not tried at longer "
        "contexts."
    )

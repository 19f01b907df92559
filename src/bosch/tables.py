"""Tables: Markdown that reads well in a terminal, and CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from bosch.files import write_text

Cell = str | int | float | None
"""None stands for a number that is not defined."""


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table with its columns aligned; all but the first to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return ["| " + " | ".join(_pad(line, widths)) + " |" for line in (lines[0], rule, *lines[1:])]


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a table atomically; None becomes an empty cell.

    Raises:
        BoschError: the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _pad(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(cells, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]

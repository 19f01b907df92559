"""Tables: Markdown that reads well in a terminal, CSV, and how sure a share is."""

import base64
import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from bosch.common.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float | None
"""None stands for a number that is not defined."""


def mean_and_spread(values: Sequence[float], digits: int) -> str:
    """`0.61 ± 0.04`: the mean, and the standard deviation of the sample where there are several."""
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table with its columns aligned; all but the first to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return ["| " + " | ".join(_pad(line, widths)) + " |" for line in (lines[0], rule, *lines[1:])]


def html_table(title: str, lines: Sequence[str], figure: "Figure | None" = None) -> str:
    """A Markdown table and a picture as HTML, for a notebook.

    Args:
        title: above both.
        lines: of a table that `text_table` made.
        figure: shown below it, if there is one.
    """
    cells = [[html.escape(cell.strip()) for cell in line[2:-2].split(" | ")] for line in lines]
    head, _, *body = cells
    rows = ["<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    rows += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body]
    shown = f"<p>{html.escape(title)}</p><table>{''.join(rows)}</table>"
    if figure is None:
        return shown
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    image = base64.b64encode(drawn.getvalue()).decode()
    return f'{shown}<img src="data:image/png;base64,{image}" alt="{html.escape(title)}">'


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


Z = 1.959963984540054
"""Two-sided 95 % of a normal distribution."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson, 1927): also right near 0 and 1, where a share +- its standard error is
    not.

    Args:
        share: the share seen, in [0, 1].
        count: of how many.
    """
    centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    return max(0.0, centre - half), min(1.0, centre + half)

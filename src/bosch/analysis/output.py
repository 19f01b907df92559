"""Where results of an analysis go: a directory in which nothing is overwritten unasked."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from bosch.errors import BoschError
from bosch.experiment.directory import make_directory
from bosch.files import write_text

Cell = str | int | float | None
"""None stands for a number that is not defined."""


def claim(directory: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Make the directory that files of these names will be written to.

    Raises:
        BoschError: one of them is there already and shall not be overwritten, or the directory cannot be made.
    """
    for name in names:
        if not overwrite and (directory / name).exists():
            raise BoschError(f"{directory / name} exists; choose another directory or --overwrite")
    make_directory(directory)


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

"""Where results of an analysis go: a directory in which nothing is overwritten unasked."""

from collections.abc import Iterable
from pathlib import Path

from bosch.errors import BoschError
from bosch.experiment.directory import make_directory


def claim(directory: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Make the directory that files of these names will be written to.

    Raises:
        BoschError: one of them is there already and shall not be overwritten, or the directory cannot be made.
    """
    for name in names:
        if not overwrite and (directory / name).exists():
            raise BoschError(f"{directory / name} exists; choose another directory or --overwrite")
    make_directory(directory)

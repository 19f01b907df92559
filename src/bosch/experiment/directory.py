"""The directory of an experiment: made, resumed, or refused, but never taken from the user."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bosch.errors import BoschError
from bosch.files import check_free, read_json, write_json
from bosch.provenance import provenance

RESOURCES = {"memory_gib", "batch_tokens", "ray", "workers"}
"""Settings that change what an experiment costs and nothing of its result: it may be resumed with others."""


class ResultDirectory(Protocol):
    """What must be known of a directory to make it, or to go on in it."""

    schema: ClassVar[str]

    @property
    def path(self) -> Path:
        """The directory."""
        ...

    @property
    def settings(self) -> Path:
        """Settings and provenance, written first."""
        ...

    @property
    def has_evaluations(self) -> bool:
        """Whether it holds anything that would be missed."""
        ...

    def clear(self) -> None:
        """Remove all results, but not the settings, nor files of others."""
        ...


@dataclasses.dataclass(frozen=True)
class ReportedDirectory:
    """Where anything that ends in a report keeps what it makes: the files that all kinds have."""

    schema: ClassVar[str]

    path: Path

    @property
    def settings(self) -> Path:
        """Settings and provenance, written first."""
        return self.path / "run.json"

    @property
    def report(self) -> Path:
        """The report to read first, written last."""
        return self.path / "report.md"


@dataclasses.dataclass(frozen=True)
class ExperimentDirectory(ReportedDirectory):
    """Where an experiment keeps everything it makes: the files that all kinds have."""

    @property
    def journal(self) -> Path:
        """Evaluations on the calibration set."""
        return self.path / "journal.jsonl"

    @property
    def heldout_journal(self) -> Path:
        """Evaluations on the held-out set."""
        return self.path / "heldout.jsonl"

    @property
    def unit_scores(self) -> Path:
        """A folder of the units' scores, one file a method that has them."""
        return self.path / "unit_scores"

    @property
    def path_masks(self) -> Path:
        """A folder of masks beside the result."""
        return self.path / "masks"

    @property
    def results(self) -> tuple[Path, ...]:
        """Files that only this kind of experiment makes."""
        raise NotImplementedError

    @property
    def has_evaluations(self) -> bool:
        """Whether it got as far as its first evaluation, which the journal's header precedes."""
        return self.journal.is_file() and self.journal.read_bytes().count(b"\n") > 1

    def clear(self) -> None:
        """Remove what an experiment makes, but not its settings: should this be stopped half-way, it is one still.
        Files that are none of it stay.

        Raises:
            BoschError: it is running.
        """
        check_free(self.journal, "search")
        for path in (self.report, *self.results, self.heldout_journal, self.journal):
            path.unlink(missing_ok=True)
        for folder in (self.path_masks, self.unit_scores):
            if folder.is_dir():
                shutil.rmtree(folder)


@dataclasses.dataclass(frozen=True)
class RowsDirectory(ReportedDirectory):
    """Where something that is measured row by row keeps everything: the files that all kinds have."""

    @property
    def rows(self) -> Path:
        """Every row so far, with what it was measured on."""
        return self.path / "rows.json"

    @property
    def csv(self) -> Path:
        """The rows for a spreadsheet."""
        return self.path / "rows.csv"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """All pictures, each as PNG and as SVG."""
        raise NotImplementedError

    @property
    def has_evaluations(self) -> bool:
        """Whether anything was measured."""
        return self.rows.exists()

    def clear(self) -> None:
        """Remove all results; files that are none of them stay."""
        for path in (self.report, *self.pictures, self.csv, self.rows):
            path.unlink(missing_ok=True)


def open_directory(run: ResultDirectory, settings: Any, *, overwrite: bool = False) -> None:
    """Make a run's directory, or go on with the one that is there.

    A run that has not evaluated anything yet, because its command had a mistake, gives way to any other.

    Args:
        run: the directory, there or not.
        settings: a frozen dataclass, all that determines the run.
        overwrite: replace another run that is there; anything that is no run is refused even so.

    Raises:
        BoschError: the directory holds another run or something else, or cannot be written.
    """
    path = run.path
    data = json.loads(json.dumps(dataclasses.asdict(settings)))
    try:
        if path.exists() and not path.is_dir():
            raise BoschError(f"{path} is a file; expected a directory for the run")
        if path.is_dir() and any(path.iterdir()):
            difference = _difference(_read_settings(run), data)
            if not difference:
                return
            if run.has_evaluations and not overwrite:
                raise BoschError(f"{path} holds another run ({difference}); choose another directory or --overwrite")
            run.clear()
    except OSError as error:
        raise BoschError(f"cannot write {path}: {error.strerror or error}") from None
    make_directory(path)
    write_json(run.settings, {"schema": run.schema, "settings": data, "provenance": provenance()})


def make_directory(path: Path) -> None:
    """Make a directory and those above it; one that is there is fine.

    Raises:
        BoschError: it cannot be made; the path and the reason are named.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BoschError(f"cannot make the directory {path}: {error.strerror or error}") from None


def _read_settings(run: ResultDirectory) -> dict[str, Any]:
    """Settings of the run that is there; none where it was killed while it wrote them.

    Raises:
        BoschError: it is no run of this kind.
    """
    if all(path.name.startswith(f".{run.settings.name}.") for path in run.path.iterdir()):
        return {}
    if not run.settings.is_file():
        raise BoschError(f"{run.path} is not empty and holds no run; choose another output directory")
    try:
        found = read_json(run.settings)
    except BoschError as error:
        raise BoschError(f"{run.settings}: {error}; choose another output directory") from None
    if not isinstance(found, dict) or found.get("schema") != run.schema or not isinstance(found.get("settings"), dict):
        raise BoschError(f"{run.settings} is not the settings of a run; choose another output directory")
    return found["settings"]


def _difference(found: dict[str, Any], settings: dict[str, Any]) -> str:
    """The first setting that differs, in words; empty where none does."""
    for name, value in settings.items():
        if name not in RESOURCES and found.get(name) != value:
            return f"its {name} is {found.get(name)!r}, now it is {value!r}"
    return ""

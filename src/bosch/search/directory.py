"""The directory of a run: made, resumed, or refused, but never taken from the user."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from bosch.errors import BoschError
from bosch.files import read_json, write_json
from bosch.provenance import provenance

RUN_SCHEMA = "bosch.run/1"

RESOURCES = {"memory_gib"}
"""Settings that change what a run costs and nothing of its result: it may be resumed with others."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Where a search keeps everything it makes."""

    path: Path

    @property
    def settings(self) -> Path:
        """Settings and provenance, written first."""
        return self.path / "run.json"

    @property
    def journal(self) -> Path:
        """Evaluations on the calibration set."""
        return self.path / "journal.jsonl"

    @property
    def heldout_journal(self) -> Path:
        """Evaluations on the held-out set."""
        return self.path / "heldout.jsonl"

    @property
    def mask(self) -> Path:
        """The result."""
        return self.path / "mask.json"

    @property
    def path_masks(self) -> Path:
        """A folder of masks at smaller ratios."""
        return self.path / "masks"

    @property
    def selection(self) -> Path:
        """Every choice of the method."""
        return self.path / "selection.json"

    @property
    def scores(self) -> Path:
        """Calibration and held-out scores."""
        return self.path / "scores.json"

    @property
    def report(self) -> Path:
        """The report to read first, written last."""
        return self.path / "report.md"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """The units, the sensitivity of the layers, and the search, each as PNG and as SVG."""
        return tuple(
            self.path / f"{name}.{kind}" for name in ("mask", "sensitivity", "search") for kind in ("png", "svg")
        )

    @property
    def is_finished(self) -> bool:
        """Whether a search came to its end here."""
        return all(path.is_file() for path in (self.mask, self.selection, self.scores, self.report))

    @property
    def has_evaluations(self) -> bool:
        """Whether a search got as far as its first evaluation, which the journal's header precedes."""
        return self.journal.is_file() and self.journal.read_bytes().count(b"\n") > 1

    def clear(self) -> None:
        """Remove what a search makes, but not its settings: should this be stopped half-way, it is a run still. Files
        that are none of a run's stay."""
        results = (self.report, self.scores, self.selection, self.mask, *self.pictures)
        for path in (*results, self.heldout_journal, self.journal):
            path.unlink(missing_ok=True)
        if self.path_masks.is_dir():
            shutil.rmtree(self.path_masks)


def open_run(path: Path, settings: Any, *, overwrite: bool = False) -> RunDirectory:
    """Make a run's directory, or go on with the one that is there.

    A run that has not evaluated anything yet, because its command had a mistake, gives way to any other.

    Args:
        path: the directory.
        settings: a frozen dataclass, all that determines the run.
        overwrite: replace another run that is there; anything that is no run is refused even so.

    Raises:
        BoschError: the directory holds another run or something else, or cannot be written.
    """
    run = RunDirectory(path)
    data = json.loads(json.dumps(dataclasses.asdict(settings)))
    try:
        if path.exists() and not path.is_dir():
            raise BoschError(f"{path} is a file; expected a directory for the run")
        if path.is_dir() and any(path.iterdir()):
            difference = _difference(_read_settings(run), data)
            if not difference:
                return run
            if run.has_evaluations and not overwrite:
                raise BoschError(f"{path} holds another run ({difference}); choose another directory or --overwrite")
            run.clear()
    except OSError as error:
        raise BoschError(f"cannot write {path}: {error.strerror or error}") from None
    make_directory(path)
    write_json(run.settings, {"schema": RUN_SCHEMA, "settings": data, "provenance": provenance()})
    return run


def make_directory(path: Path) -> None:
    """Make a directory and those above it; one that is there is fine.

    Raises:
        BoschError: it cannot be made; the path and the reason are named.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BoschError(f"cannot make the directory {path}: {error.strerror or error}") from None


def _read_settings(run: RunDirectory) -> dict[str, Any]:
    """Settings of the run that is there; none where it was killed while it wrote them.

    Raises:
        BoschError: it is no run.
    """
    if all(path.name.startswith(f".{run.settings.name}.") for path in run.path.iterdir()):
        return {}
    if not run.settings.is_file():
        raise BoschError(f"{run.path} is not empty and holds no run; choose another output directory")
    try:
        found = read_json(run.settings)
    except BoschError as error:
        raise BoschError(f"{run.settings}: {error}; choose another output directory") from None
    if not isinstance(found, dict) or found.get("schema") != RUN_SCHEMA or not isinstance(found.get("settings"), dict):
        raise BoschError(f"{run.settings} is not the settings of a run; choose another output directory")
    return found["settings"]


def _difference(found: dict[str, Any], settings: dict[str, Any]) -> str:
    """The first setting that differs, in words; empty where none does."""
    for name, value in settings.items():
        if name not in RESOURCES and found.get(name) != value:
            return f"its {name} is {found.get(name)!r}, now it is {value!r}"
    return ""

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
        """The report to read first."""
        return self.path / "report.md"


def open_run(path: Path, settings: Any, *, overwrite: bool = False) -> RunDirectory:
    """Make a run's directory, or go on with the one that is there.

    Args:
        path: the directory.
        settings: a frozen dataclass, all that determines the run.
        overwrite: empty the directory first if it holds another run; anything that is no run is refused even so.

    Raises:
        BoschError: the directory holds another run or something else, or cannot be written.
    """
    run = RunDirectory(path)
    data = json.loads(json.dumps(dataclasses.asdict(settings)))
    try:
        if path.exists() and not path.is_dir():
            raise BoschError(f"{path} is a file; expected a directory for the run")
        if path.is_dir() and any(path.iterdir()):
            if not _is_run(run):
                raise BoschError(f"{path} is not empty and holds no run; choose another output directory")
            difference = _difference(run, data)
            if not difference:
                return run
            if not overwrite:
                raise BoschError(f"{path} holds another run ({difference}); choose another directory or --overwrite")
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BoschError(f"cannot write {path}: {error.strerror or error}") from None
    write_json(run.settings, {"schema": RUN_SCHEMA, "settings": data, "provenance": provenance()})
    return run


def _is_run(run: RunDirectory) -> bool:
    """Whether a run wrote its settings there, or was killed while it did."""
    leftover = {path.name for path in run.path.iterdir()}
    if all(name.startswith(f".{run.settings.name}.") for name in leftover):
        return True
    return run.settings.is_file() and read_json(run.settings).get("schema") == RUN_SCHEMA


def _difference(run: RunDirectory, settings: dict[str, Any]) -> str:
    """The first setting that differs, in words; empty where none does."""
    found = read_json(run.settings)["settings"] if run.settings.is_file() else {}
    for name, value in settings.items():
        if found.get(name) != value:
            return f"its {name} is {found.get(name)!r}, now it is {value!r}"
    return ""

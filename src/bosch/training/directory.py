"""The directory of a training: made, gone on with, or refused, but never taken from the user."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bosch.errors import BoschError
from bosch.files import check_free, read_json, write_json
from bosch.provenance import provenance
from bosch.training.settings import RESOURCES, TrainSettings

TRAINING_SCHEMA = "bosch.training/1"


@dataclasses.dataclass(frozen=True)
class TrainingDirectory:
    """Where a training keeps everything it makes."""

    path: Path

    @property
    def run(self) -> Path:
        """Settings, subject, number of processes and provenance, written first."""
        return self.path / "training.json"

    @property
    def log(self) -> Path:
        """A line a step and an evaluation."""
        return self.path / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        """A folder of the last checkpoints, one folder each."""
        return self.path / "checkpoints"

    @property
    def trackers(self) -> Path:
        """A folder of what accelerate's trackers write."""
        return self.path / "trackers"

    def clear(self) -> None:
        """Remove what a training makes; other files stay.

        Raises:
            BoschError: it is running.
        """
        check_free(self.run, "training")
        for folder in (self.checkpoints, self.trackers):
            if folder.is_dir():
                shutil.rmtree(folder)
        for file in (self.log, self.run):
            file.unlink(missing_ok=True)


def open_directory(
    directory: TrainingDirectory,
    settings: TrainSettings,
    subject: Mapping[str, Any],
    num_processes: int,
    *,
    overwrite: bool = False,
) -> None:
    """Make a training's directory, or go on with the training that is there.

    A training that has not taken a step yet, because its command had a mistake, gives way to any other.

    Args:
        directory: there or not.
        settings: how it learns.
        subject: what is trained on what, as plain data.
        num_processes: that share a step.
        overwrite: replace another training that is there; anything that is no training is refused even so.

    Raises:
        BoschError: the directory holds another training or something else, or cannot be written.
    """
    path = directory.path
    run = json.loads(json.dumps({**dataclasses.asdict(settings), **subject, "number of processes": num_processes}))
    try:
        if path.exists() and not path.is_dir():
            raise BoschError(f"{path} is a file; expected a directory for the training")
        if path.is_dir() and any(path.iterdir()):
            difference = _difference(_read_run(directory), run)
            if not difference:
                return
            if directory.log.exists() and not overwrite:
                raise BoschError(f"{path} holds another training ({difference}); choose another directory or overwrite")
            directory.clear()
        directory.checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BoschError(f"cannot write {path}: {error.strerror or error}") from None
    write_json(directory.run, {"schema": TRAINING_SCHEMA, "run": run, "provenance": provenance()})


def _read_run(directory: TrainingDirectory) -> dict[str, Any]:
    """What the training that is there was begun with.

    Raises:
        BoschError: it is no training.
    """
    try:
        data = read_json(directory.run)
    except BoschError as error:
        raise BoschError(f"{directory.path} is not empty and holds no training ({error}); choose another") from None
    if not isinstance(data, dict) or data.get("schema") != TRAINING_SCHEMA or not isinstance(data.get("run"), dict):
        raise BoschError(f"{directory.run} is not the beginning of a training; choose another output directory")
    return data["run"]


def _difference(found: dict[str, Any], run: dict[str, Any]) -> str:
    """The first value that differs, in words; empty where none does."""
    for name in sorted((found.keys() | run.keys()) - RESOURCES):
        if found.get(name) != run.get(name):
            return f"its {name} is {found.get(name)!r}, now it is {run.get(name)!r}"
    return ""

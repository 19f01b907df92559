"""The directory of a training."""

import dataclasses
from pathlib import Path
from typing import Any

from bosch.common.files import read_json
from bosch.common.output import OutputDirectory

EARLIER_SCHEMA = "bosch.training/1"
EARLIER_NAMES = {
    "data": "texts",
    "length": "lengths",
    "held-out examples": "heldout_examples",
    "number of processes": "num_processes",
    "sequence length": "packed_length",
    "documents apart": "packed_apart",
}


@dataclasses.dataclass(frozen=True)
class TrainingDirectory(OutputDirectory):
    """Where a training keeps everything it makes."""

    schema = "bosch.training/2"
    called = "training"
    results = ("checkpoints", "trackers", "log.jsonl", "training.json")
    resources = frozenset({"save_every", "keep_last", "eval_every", "trackers"})

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

    @property
    def has_results(self) -> bool:
        """Whether it has taken a step or made an evaluation."""
        return self.log.exists()

    def read_settings(self) -> dict[str, Any]:
        """What the training was begun with; that of an earlier version lies in `training.json`, under other names.

        Raises:
            BoschError: as in `OutputDirectory`.
        """
        earlier = self.path / "training.json"
        if self.settings.is_file() or not earlier.is_file():
            return super().read_settings()
        found = read_json(earlier)
        run = found.get("run") if isinstance(found, dict) and found.get("schema") == EARLIER_SCHEMA else None
        if not isinstance(run, dict):
            return super().read_settings()
        return {str(EARLIER_NAMES.get(name, name)): value for name, value in run.items()}

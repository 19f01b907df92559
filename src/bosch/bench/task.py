"""What one child process is asked to measure."""

import dataclasses
import json
from typing import Any

from bosch.bench.settings import BenchSettings
from bosch.heads import HeadMask


@dataclasses.dataclass(frozen=True)
class Task:
    """One model, and the context lengths to measure it at.

    Args:
        settings: of the benchmark.
        contexts: those that are missing, ascending.
        mask: of the hybrid; None: the original.
    """

    settings: BenchSettings
    contexts: tuple[int, ...]
    mask: HeadMask | None

    def to_text(self) -> str:
        """The task as JSON."""
        mask = self.mask and self.mask.to_json()
        return json.dumps({"settings": dataclasses.asdict(self.settings), "contexts": self.contexts, "mask": mask})

    @classmethod
    def from_text(cls, text: str) -> "Task":
        """The task that `to_text` gave."""
        data = json.loads(text)
        settings: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in data["settings"].items()
        }
        mask = data["mask"] and HeadMask.from_json(data["mask"])
        return cls(BenchSettings(**settings), tuple(data["contexts"]), mask)

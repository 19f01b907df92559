"""The directory of an evaluation."""

import dataclasses
from pathlib import Path

from bosch.experiment.directory import RowsDirectory


@dataclasses.dataclass(frozen=True)
class EvalDirectory(RowsDirectory):
    """Where an evaluation keeps everything it makes."""

    schema = "bosch.eval/1"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """All pictures; how many there are depends on the models."""
        return tuple(path for kind in ("png", "svg") for path in sorted(self.path.glob(f"eval-*.{kind}")))

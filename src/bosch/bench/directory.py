"""The directory of a benchmark."""

import dataclasses
from pathlib import Path

from bosch.experiment.directory import RowsDirectory


@dataclasses.dataclass(frozen=True)
class BenchDirectory(RowsDirectory):
    """Where a benchmark keeps everything it makes."""

    schema = "bosch.bench/1"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """Everything against the context length."""
        return (self.path / "bench.png", self.path / "bench.svg")

"""The directory of a comparison."""

import dataclasses
from pathlib import Path

from bosch.experiment.directory import ExperimentDirectory


@dataclasses.dataclass(frozen=True)
class ComparisonDirectory(ExperimentDirectory):
    """Where a comparison keeps everything it makes."""

    schema = "bosch.comparison/1"

    @property
    def rows(self) -> Path:
        """Scores and cost of every mask so far."""
        return self.path / "rows.json"

    @property
    def csv(self) -> Path:
        """The rows for a spreadsheet."""
        return self.path / "rows.csv"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """Scores against the ratio, as PNG and as SVG."""
        return (self.path / "compare.png", self.path / "compare.svg")

    @property
    def results(self) -> tuple[Path, ...]:
        """The rows, and the pictures."""
        return (self.rows, self.csv, *self.pictures)

    def mask(self, method: str, ratio: float, seed: int | None) -> Path:
        """The mask of one method at one ratio; with a seed where the method is pure chance."""
        return self.path_masks / f"{method}@{ratio}{'' if seed is None else f'.seed{seed}'}.json"

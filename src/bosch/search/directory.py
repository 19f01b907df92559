"""The directory of a search."""

import dataclasses
from pathlib import Path

from bosch.experiment.directory import ExperimentDirectory


@dataclasses.dataclass(frozen=True)
class RunDirectory(ExperimentDirectory):
    """Where a search keeps everything it makes."""

    schema = "bosch.run/1"

    @property
    def mask(self) -> Path:
        """The result."""
        return self.path / "mask.json"

    @property
    def selection(self) -> Path:
        """Every choice of the method."""
        return self.path / "selection.json"

    @property
    def scores(self) -> Path:
        """Calibration and held-out scores."""
        return self.path / "scores.json"

    @property
    def front(self) -> Path:
        """Score against the size of the cache, of every mask from the original to all sliding."""
        return self.path / "front.csv"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """The units, the layers' sensitivity, the search, and the front, each as PNG and as SVG."""
        return tuple(
            self.path / f"{name}.{kind}"
            for name in ("mask", "sensitivity", "search", "front")
            for kind in ("png", "svg")
        )

    @property
    def results(self) -> tuple[Path, ...]:
        """The mask, how it was chosen, its scores, and the pictures."""
        return (self.scores, self.selection, self.mask, self.front, *self.pictures)

    @property
    def is_finished(self) -> bool:
        """Whether a search came to its end here."""
        return all(path.is_file() for path in (self.mask, self.selection, self.scores, self.report))

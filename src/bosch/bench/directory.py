"""The directory of a benchmark."""

import dataclasses
from pathlib import Path
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class BenchDirectory:
    """Where a benchmark keeps everything it makes."""

    schema: ClassVar[str] = "bosch.bench/1"

    path: Path

    @property
    def settings(self) -> Path:
        """Settings and provenance, written first."""
        return self.path / "run.json"

    @property
    def rows(self) -> Path:
        """Every row so far, with what it was measured on."""
        return self.path / "rows.json"

    @property
    def csv(self) -> Path:
        """The rows for a spreadsheet."""
        return self.path / "rows.csv"

    @property
    def report(self) -> Path:
        """The report to read first, written last."""
        return self.path / "report.md"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """Everything against the context length, as PNG and as SVG."""
        return (self.path / "bench.png", self.path / "bench.svg")

    @property
    def has_evaluations(self) -> bool:
        """Whether anything was measured."""
        return self.rows.exists()

    def clear(self) -> None:
        """Remove all results; files that are none of them stay."""
        for path in (self.report, *self.pictures, self.csv, self.rows):
            path.unlink(missing_ok=True)

"""The directory of an evaluation."""

import dataclasses
from pathlib import Path
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class EvalDirectory:
    """Where an evaluation keeps everything it makes."""

    schema: ClassVar[str] = "bosch.eval/1"

    path: Path

    @property
    def settings(self) -> Path:
        """Settings and provenance, written first."""
        return self.path / "run.json"

    @property
    def rows(self) -> Path:
        """Every row so far, and what was measured."""
        return self.path / "rows.json"

    @property
    def csv(self) -> Path:
        """The scores for a spreadsheet."""
        return self.path / "rows.csv"

    @property
    def report(self) -> Path:
        """The report to read first, written last."""
        return self.path / "report.md"

    @property
    def pictures(self) -> tuple[Path, ...]:
        """All pictures, as PNG and as SVG; how many there are depends on the targets."""
        return tuple(path for kind in ("png", "svg") for path in sorted(self.path.glob(f"eval-*.{kind}")))

    @property
    def has_evaluations(self) -> bool:
        """Whether anything was measured."""
        return self.rows.exists()

    def clear(self) -> None:
        """Remove all results; files that are none of them stay."""
        for path in (self.report, *self.pictures, self.csv, self.rows):
            path.unlink(missing_ok=True)

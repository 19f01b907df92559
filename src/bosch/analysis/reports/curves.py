"""What trainings recover, against tokens (paper, Figure 3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bosch.analysis.curves import Curve
from bosch.analysis.output import claim
from bosch.analysis.pictures import draw_curves
from bosch.errors import BoschError
from bosch.tables import text_table, write_csv

FILES = ("curves.csv", "curves.png", "curves.svg")


def write_curves(curves: Sequence[Curve], directory: Path, *, overwrite: bool = False) -> str:
    """Write every point as CSV, and the picture.

    Args:
        curves: of trainings that were judged by the same examples.
        directory: where to.
        overwrite: replace files of these names.

    Returns:
        A table: each training before and after, and its original.

    Raises:
        BoschError: two trainings have one name, or the files are there already.
    """
    named = {curve.name: curve for curve in curves}
    if len(named) < len(curves):
        raise BoschError(f"two trainings have one name, got {', '.join(curve.name for curve in curves)}")
    claim(directory, FILES, overwrite=overwrite)
    rows = [(name, point.tokens, point.accuracy, point.nll) for name, one in named.items() for point in one.points]
    rows += [(f"{name}: original", 0, one.original.accuracy, one.original.nll) for name, one in named.items()]
    write_csv(directory / "curves.csv", ["training", "tokens", "accuracy", "nll"], rows)
    draw_curves(named, directory / "curves")
    return _table(named)


def _table(curves: Mapping[str, Curve]) -> str:
    header = ["training", "tokens", "accuracy before", "after", "original", "NLL before", "after", "original"]
    rows = []
    for name, curve in curves.items():
        before, after, original = curve.points[0], curve.points[-1], curve.original
        accuracies = [f"{point.accuracy:.2f}" for point in (before, after, original)]
        rows.append(
            [name, f"{after.tokens:,}", *accuracies, *(f"{point.nll:.3f}" for point in (before, after, original))]
        )
    return "\n".join(text_table(header, rows))

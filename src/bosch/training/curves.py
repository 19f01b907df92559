"""Trainings as curves of held-out scores against tokens (paper, Figure 3)."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import EngFormatter

from bosch.common.output import AnalysisDirectory
from bosch.common.pictures import new_figure, save_figure
from bosch.common.tables import text_table, write_csv
from bosch.errors import BoschError
from bosch.training.directory import TrainingDirectory
from bosch.training.log import ORIGINAL, read_log


@dataclasses.dataclass(frozen=True)
class Point:
    """An evaluation.

    Args:
        tokens: trained on so far.
        accuracy: share of held-out examples answered.
        nll: of their answers, in nats a token.
    """

    tokens: int
    accuracy: float
    nll: float


@dataclasses.dataclass(frozen=True)
class Curve:
    """A training, as its evaluations show it.

    Args:
        name: of its directory.
        points: its evaluations, at least one, in their order.
        original: the scores of the model with all heads full, before the training.
        examples: fingerprint of the held-out examples.
    """

    name: str
    points: tuple[Point, ...]
    original: Point
    examples: str


def load_curves(directories: Sequence[Path]) -> tuple[Curve, ...]:
    """The curves of some trainings, finished or not.

    Raises:
        BoschError: one is no training or has no evaluations, or they were not judged by the same examples.
    """
    curves = tuple(map(_load, directories))
    for path, curve in zip(directories, curves, strict=True):
        if curve.examples != curves[0].examples:
            raise BoschError(
                f"{path} was evaluated on other held-out examples than {directories[0]}; expected the same tasks, "
                "lengths, heldout, haystack, chat and tokenizer"
            )
    return curves


def _load(path: Path) -> Curve:
    if not path.is_dir():
        raise BoschError(f"{path} is no directory; expected that of a training")
    directory = TrainingDirectory(path)
    examples = directory.read_settings().get("heldout_examples")
    lines = [line for line in read_log(directory.log) if "scores" in line] if isinstance(examples, str) else []
    if not isinstance(examples, str) or not lines:
        raise BoschError(f"{path} is no training with evaluations; expected one begun with --eval-every")
    points = tuple(_point(line, directory.log) for line in lines)
    return Curve(path.resolve().name, points, _point(lines[0], directory.log, ORIGINAL), examples)


def _point(line: dict[str, Any], log: Path, prefix: str = "") -> Point:
    scores = line["scores"]
    values = [scores.get(f"{prefix}{name}") for name in ("accuracy", "nll")] if isinstance(scores, dict) else [None]
    if not all(isinstance(value, int | float) for value in values):
        raise BoschError(f"{log}: not the log of bosch train: expected {prefix}accuracy and nll among the scores")
    return Point(line["tokens"], *values)


PANELS = (("accuracy", "held-out accuracy"), ("nll", "held-out NLL, nats a token"))


def draw_curves(curves: Mapping[str, Curve], path: Path) -> None:
    """Two panels, accuracy and NLL; a dashed line is the model that a training began with, all its heads full.

    Args:
        curves: by name; at least one.
        path: without an ending.
    """
    figure = new_figure(9, 3.8)
    for axes, (score, label) in zip(figure.subplots(1, 2), PANELS, strict=True):
        for original in sorted({getattr(curve.original, score) for curve in curves.values()}):
            axes.axhline(original, color="black", linewidth=1, linestyle="--", label="original")
        for name, curve in curves.items():
            tokens = [point.tokens for point in curve.points]
            values = [getattr(point, score) for point in curve.points]
            # A name may hold what would be a formula.
            axes.plot(tokens, values, marker="o", markersize=3.5, linewidth=1.4, label=name.replace("$", r"\$"))
        axes.set_xlabel("tokens trained on")
        axes.set_ylabel(label)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylim(-0.03, 1.03)
    figure.axes[1].set_ylim(bottom=0)
    figure.axes[0].legend(fontsize=8, frameon=False)
    save_figure(figure, path)


def write_curves(curves: Sequence[Curve], directory: Path, *, overwrite: bool = False) -> str:
    """Write every point as CSV, and the picture.

    Args:
        curves: of trainings that were judged by the same examples.
        directory: where to.
        overwrite: replace another analysis that is there.

    Returns:
        A table: each training before and after, and its original.

    Raises:
        BoschError: two trainings have one name, or the files are there already.
    """
    named = {curve.name: curve for curve in curves}
    if len(named) < len(curves):
        raise BoschError(f"two trainings have one name, got {', '.join(curve.name for curve in curves)}")
    rows = [(name, point.tokens, point.accuracy, point.nll) for name, one in named.items() for point in one.points]
    rows += [(f"{name}: original", 0, one.original.accuracy, one.original.nll) for name, one in named.items()]
    with AnalysisDirectory(directory).claimed({"analysis": "curves", "rows": rows}, overwrite=overwrite) as claim:
        claim.begin()
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

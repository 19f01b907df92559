"""Trainings as curves of held-out scores against tokens (paper, Figure 3)."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bosch.errors import BoschError
from bosch.files import read_json
from bosch.training.directory import TRAINING_SCHEMA, TrainingDirectory
from bosch.training.log_file import ORIGINAL, read_log


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
                "length, heldout, haystack, chat and tokenizer"
            )
    return curves


def _load(path: Path) -> Curve:
    directory = TrainingDirectory(path)
    try:
        data = read_json(directory.run)
    except BoschError as error:
        raise BoschError(f"{directory.run}: {error}") from None
    run = data.get("run") if isinstance(data, dict) and data.get("schema") == TRAINING_SCHEMA else None
    examples = run.get("held-out examples") if isinstance(run, dict) else None
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

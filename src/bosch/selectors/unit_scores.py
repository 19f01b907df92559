"""Unit scores on disk: measured once, used at every ratio."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bosch.common.files import read_json, write_json
from bosch.errors import BoschError
from bosch.heads import HeadLayout
from bosch.runs import MaskFile
from bosch.scoring.objective import Cost
from bosch.selectors.method import Measured, UnitScores

UNIT_SCORES_SCHEMA = "bosch.unit_scores/1"


def save_unit_scores(path: Path, measured: Measured, origin: Mapping[str, Any]) -> None:
    """Write the scores, their cost, and what they are of, atomically.

    Raises:
        BoschError: the file cannot be written.
    """
    scores = [[layer, head, score] for (layer, head), score in sorted(measured.scores.items())]
    data = {"schema": UNIT_SCORES_SCHEMA, "origin": dict(origin), "scores": scores}
    write_json(path, {**data, "cost": dataclasses.asdict(measured.cost)})


def load_unit_scores(path: Path, layout: HeadLayout, origin: Mapping[str, Any]) -> Measured | None:
    """Read scores back, as data; None where there are none.

    Raises:
        BoschError: the file is of something else, or not what `save_unit_scores` wrote.
    """
    if not path.exists():
        return None
    data = read_json(path)
    try:
        if not isinstance(data, dict) or data.get("schema") != UNIT_SCORES_SCHEMA:
            raise BoschError(f"not a file of unit scores: expected the schema {UNIT_SCORES_SCHEMA!r}")
        if data.get("origin") != dict(origin):
            raise BoschError("it was measured on another model, other examples or another window; delete it")
        scores = {(layer, head): float(score) for layer, head, score in data["scores"]}
        for unit, score in scores.items():
            if not math.isfinite(score):
                raise BoschError(f"the score of unit {unit} is {score}; expected a finite number")
        if scores.keys() != set(layout.units()):
            raise BoschError(f"its units are not those of this model, {layout}")
        return Measured(scores, Cost(**data["cost"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BoschError(f"{path}: {error}") from None


def load_scores_for(path: Path, choice: MaskFile) -> UnitScores:
    """Read `unit_scores/<method>.json` of a search or a comparison, as data.

    Args:
        path: the file.
        choice: the mask that the scores are to be held against.

    Raises:
        BoschError: the file is none of unit scores, or it is of other units, another model, window or number of sinks
            than the mask.
    """
    origin = _read_origin(path)
    measured = load_unit_scores(path, choice.mask.layout, origin)
    assert measured, "it was read before"
    found: dict[str, Any] = {"window": choice.mask.window, "sinks": choice.mask.sinks}
    if choice.model_hash:
        found["model_hash"] = choice.model_hash
    for name, value in found.items():
        if origin.get(name) != value:
            raise BoschError(
                f"{path} was measured with {name} {origin.get(name)!r}, but {choice.path} has {value!r}; "
                "expected scores and a mask of one model and window"
            )
    return measured.scores


def _read_origin(path: Path) -> dict[str, Any]:
    data = read_json(path)
    origin = data.get("origin") if isinstance(data, dict) else None
    if not isinstance(origin, dict):
        raise BoschError(f"{path}: not a file of unit scores; expected one from the folder unit_scores of a search")
    return origin

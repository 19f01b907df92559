"""Unit scores of a static method, read for the model of a mask."""

from pathlib import Path
from typing import Any

from bosch.analysis.masks import MaskFile
from bosch.errors import BoschError
from bosch.experiment.unit_scores import load_unit_scores
from bosch.files import read_json
from bosch.selectors.contract import UnitScores


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
    try:
        data = read_json(path)
    except BoschError as error:
        raise BoschError(f"{path}: {error}") from None
    origin = data.get("origin") if isinstance(data, dict) else None
    if not isinstance(origin, dict):
        raise BoschError(f"{path}: not a file of unit scores; expected one from the folder unit_scores of a search")
    return origin

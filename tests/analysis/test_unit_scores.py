import dataclasses
import json
from pathlib import Path

import pytest
from masks_by_hand import LAYOUT, WINDOW, sliding

from bosch.errors import BoschError
from bosch.runs import MaskFile
from bosch.scoring.objective import Cost
from bosch.selectors.method import Measured
from bosch.selectors.unit_scores import load_scores_for, save_unit_scores

SCORES = {unit: 0.25 * number for number, unit in enumerate(LAYOUT.units())}
ORIGIN = {"model_hash": "abc", "window": WINDOW, "sinks": 0, "seed": 3}
CHOICE = MaskFile(Path("choice.json"), sliding([(0, 0)]), {"model_hash": "abc"})


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "razor.json"
    save_unit_scores(path, Measured(SCORES, Cost(0, 1.0, 2.0)), ORIGIN)
    return path


def change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_scores_come_back_for_the_mask_of_their_model(path):
    assert load_scores_for(path, CHOICE) == SCORES
    assert load_scores_for(path, dataclasses.replace(CHOICE, provenance={})) == SCORES


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ({**ORIGIN, "window": 8}, r"razor\.json was measured with window 8, but choice\.json has 7"),
        ({**ORIGIN, "sinks": 1}, "sinks 1, but choice.json has 0"),
        ({**ORIGIN, "model_hash": "xyz"}, "model_hash 'xyz', but choice.json has 'abc'"),
        ({}, "window None"),
        ([], "not a file of unit scores"),
    ],
)
def test_scores_of_something_else_are_refused(path, origin, message):
    change(path, origin=origin)
    with pytest.raises(BoschError, match=message):
        load_scores_for(path, CHOICE)


@pytest.mark.parametrize(
    "scores",
    [
        "x",
        [[0, 0, 1.0]],
        [[0, 0]],
        [[*unit, "high"] for unit in SCORES],
        [[[], 0, 1.0]],
        [[*unit, 10**400] for unit in SCORES],
    ],
    ids=["text", "one unit", "pairs", "words", "nested", "beyond floats"],
)
def test_what_is_no_table_of_scores_is_refused_by_name(path, scores):
    change(path, scores=scores)
    with pytest.raises(BoschError, match=r"razor\.json: "):
        load_scores_for(path, CHOICE)


def test_an_infinite_score_is_refused(path):
    path.write_text(path.read_text().replace("0.25", "1e999"))
    with pytest.raises(BoschError, match=r"the score of unit \(0, 1\) is inf; expected a finite number"):
        load_scores_for(path, CHOICE)


@pytest.mark.parametrize("content", [None, "", "[]", "{}"])
def test_a_file_that_is_none_of_scores_is_refused_by_name(tmp_path, content):
    path = tmp_path / "razor.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BoschError, match=r"razor\.json: "):
        load_scores_for(path, CHOICE)

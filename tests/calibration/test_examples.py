"""Storing a set of examples: data in, data out, and every damage noticed."""

import dataclasses
import json
import os
import pickle

import pytest

from bosch.calibration import Example, ExampleSet
from bosch.errors import BoschError

EXAMPLE = Example(
    input_ids=(5, 3, 2, 7, 11),
    answer_start=3,
    needle_start=1,
    task="niah_single_1",
    length=6,
    depth=0.25,
    prompt="It is",
    answer="42",
)
SET = ExampleSet((EXAMPLE, dataclasses.replace(EXAMPLE, answer="43")), {"seed": 1, "tasks": ["niah_single_1"]})


def test_an_example_counts_its_tokens():
    assert EXAMPLE.num_answer_tokens == 2
    assert EXAMPLE.distance == 2


def test_what_is_saved_is_loaded(tmp_path):
    SET.save(tmp_path / "examples.jsonl")
    loaded = ExampleSet.load(tmp_path / "examples.jsonl")
    assert loaded == SET
    assert loaded.fingerprint == SET.fingerprint
    assert len((tmp_path / "examples.jsonl").read_text().splitlines()) == 3


def test_the_fingerprint_is_of_the_content_alone():
    assert ExampleSet(SET.examples, {}).fingerprint == SET.fingerprint
    for change in ({"input_ids": (5, 3, 2, 7, 12)}, {"answer_start": 4}, {"prompt": "It was"}):
        changed = ExampleSet((dataclasses.replace(EXAMPLE, **change), SET.examples[1]), SET.settings)
        assert changed.fingerprint != SET.fingerprint
    assert ExampleSet(SET.examples[::-1]).fingerprint != SET.fingerprint


def test_a_set_without_examples_is_refused():
    with pytest.raises(BoschError, match="at least one example"):
        ExampleSet(())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": [5, 3, 2, 7, -1]}, "non-negative integers"),
        ({"input_ids": [5, 3, 2, 7, 1.5]}, "non-negative integers"),
        ({"input_ids": "5 3 2"}, "input_ids must be of type list"),
        ({"answer_start": 5}, "needs 0 <= needle_start < answer_start"),
        ({"needle_start": 3}, "got 3, 3, 5, 6"),
        ({"answer_start": True}, "answer_start must be of type int, got True"),
        ({"length": 4}, "got 1, 3, 5, 4"),
        ({"depth": float("nan")}, r"depth must lie in \[0, 1\], got nan"),
        ({"depth": 1.5}, "got 1.5"),
        ({"task": None}, "task must be of type str"),
        ({"extra": 1}, "exactly input_ids, answer_start"),
    ],
)
def test_a_damaged_example_is_refused(change, message):
    data = {**json.loads(json.dumps(vars(EXAMPLE))), **change}
    with pytest.raises(BoschError, match=message):
        Example.from_json(data)


def test_damaged_files_are_refused_with_their_path(tmp_path):
    path = tmp_path / "examples.jsonl"
    SET.save(path)
    good = path.read_text()
    for content, message in {
        "": "schema 'bosch.examples/1'",
        "[]\n": "schema 'bosch.examples/1'",
        good.replace("bosch.examples/1", "bosch.mask/1"): "schema 'bosch.examples/1'",
        good.replace('"settings": {', '"setting": {'): "must have settings",
        good.replace('"43"', '"44"'): "do not match their fingerprint",
        good.rpartition("{")[0]: "do not match their fingerprint",
        good[:-20]: "not valid JSON lines",
        good.splitlines()[0]: "at least one example",
    }.items():
        path.write_text(content)
        with pytest.raises(BoschError, match=message) as caught:
            ExampleSet.load(path)
        assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(BoschError, match="cannot read it: No such file"):
        ExampleSet.load(tmp_path / "missing.jsonl")


def test_a_pickle_is_refused_and_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "marker"),)

    path = tmp_path / "examples.jsonl"
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(BoschError, match="not valid JSON lines"):
        ExampleSet.load(path)
    assert not (tmp_path / "marker").exists()

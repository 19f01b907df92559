"""A set of examples: what it counts, and what its fingerprint is of."""

import dataclasses

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


def test_the_fingerprint_is_of_the_content_alone():
    assert ExampleSet(SET.examples, {}).fingerprint == SET.fingerprint
    for change in ({"input_ids": (5, 3, 2, 7, 12)}, {"answer_start": 4}, {"prompt": "It was"}):
        changed = ExampleSet((dataclasses.replace(EXAMPLE, **change), SET.examples[1]), SET.settings)
        assert changed.fingerprint != SET.fingerprint
    assert ExampleSet(SET.examples[::-1]).fingerprint != SET.fingerprint


def test_a_set_without_examples_is_refused():
    with pytest.raises(BoschError, match="at least one example"):
        ExampleSet(())


def test_a_set_is_a_sequence_of_its_examples():
    assert [example.answer for example in SET] == ["42", "43"]
    assert (len(SET), SET[0], SET[-1].answer) == (2, EXAMPLE, "43")

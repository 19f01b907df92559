"""Made examples: lengths, balance, depths, splits, wording, seeds, refusals."""

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import word_level

from bosch.calibration import TASKS, make_examples
from bosch.calibration.generator import largest_fit
from bosch.calibration.haystack import NOISE
from bosch.errors import BoschError

NEEDLE = re.compile(r"One of the special magic (?:numbers|uuids) for (\S+) is: (\S+)\.")
WORDS = word_level()


def make(tokenizer=WORDS, **changes):
    ask = {"tasks": list(TASKS), "lengths": [256], "num_examples": 6, "seed": 3}
    return make_examples(tokenizer, **{**ask, **changes})


def test_the_wording_is_the_benchmarks():
    example = make(tasks=["niah_single_1"], lengths=[135], num_examples=1).examples[0]
    (key, value), *others = NEEDLE.findall(example.prompt)
    assert not others
    assert example.answer == value
    assert len(value) == 7
    assert value.isdigit()
    noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    needle = f"One of the special magic numbers for {key} is: {value}."
    lines = example.prompt.split("\n")
    assert lines[0] == (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards."
    )
    assert lines[-1] == (
        f"What is the special magic number for {key} mentioned in the provided text? "
        f"The special magic number for {key} mentioned in the provided text is"
    )
    assert set(lines[1:-2]) == {noise, needle}
    assert noise.startswith(lines[-2]) or lines[-2] == needle


@pytest.mark.parametrize("task", TASKS)
def test_examples_fill_their_length_to_less_than_one_unit(tokenizer, task):
    for example in make(tokenizer, tasks=[task], lengths=[660, 1402], num_examples=2).examples:
        units = {
            "noise": NOISE,
            "prose": example.prompt.split(),
            "needles": [match[0] for match in NEEDLE.finditer(example.prompt)],
        }[TASKS[task].haystack]
        one_unit = max(len(tokenizer(f" {unit}", add_special_tokens=False)["input_ids"]) for unit in units)
        assert 0 <= example.length - len(example.input_ids) <= one_unit


@pytest.mark.parametrize("task", TASKS)
def test_the_needle_is_where_the_example_says(tokenizer, task):
    for example in make(tokenizer, tasks=[task], lengths=[900], num_examples=2).examples:
        key = re.search(r"What is the special magic \w+ for (\S+) mentioned", example.prompt)[1]
        matches = {match[1]: match for match in NEEDLE.finditer(example.prompt)}
        assert matches[key][2] == example.answer
        assert example.prompt.count(example.answer) == 1
        before = example.prompt[: matches[key].start()]
        # Tokens of the text before the needle, tokenized alone, may differ at its very end only.
        assert abs(len(tokenizer(before)["input_ids"]) - example.needle_start) <= 3
        assert example.distance == example.answer_start - example.needle_start > 0
        assert example.num_answer_tokens == len(example.input_ids) - example.answer_start > 0


def test_multikey_tasks_hold_their_number_of_keys():
    by_task = {example.task: NEEDLE.findall(example.prompt) for example in make().examples}
    assert [len(by_task[f"niah_single_{variant}"]) for variant in (1, 2, 3)] == [1, 1, 1]
    assert len(by_task["niah_multikey_1"]) == 4
    assert len(by_task["niah_multikey_2"]) > 4
    for pairs in by_task.values():
        assert len({key for key, _ in pairs}) == len({value for _, value in pairs}) == len(pairs)


@settings(max_examples=10, deadline=None)
@given(seeds=st.lists(st.integers(0, 2**40), min_size=2, max_size=2), num_examples=st.integers(1, 12))
def test_the_splits_never_share_a_key_or_a_value(seeds, num_examples):
    seen = []
    for split, seed in zip(("calibration", "heldout"), seeds, strict=True):
        examples = make(seed=seed, split=split, num_examples=num_examples).examples
        seen.append({item for example in examples for pair in NEEDLE.findall(example.prompt) for item in pair})
    assert seen[0]
    assert not seen[0] & seen[1]


@given(
    num_tasks=st.integers(1, 6),
    lengths=st.lists(st.integers(250, 290), min_size=1, max_size=4, unique=True),
    num_examples=st.integers(1, 30),
)
@settings(max_examples=12, deadline=None)
def test_any_beginning_is_balanced_over_tasks_and_lengths(num_tasks, lengths, num_examples):
    made = make(tasks=list(TASKS)[:num_tasks], lengths=lengths, num_examples=num_examples)
    assert len(made) == num_examples
    combinations = num_tasks * len(lengths)
    for stop in range(1, num_examples + 1):
        counts = Counter((example.task, example.length) for example in made.examples[:stop])
        assert len(counts) == min(stop, combinations)
        assert max(counts.values()) == -(-stop // combinations)
        assert len({task for task, _ in counts}) == min(stop, num_tasks)
        assert len({length for _, length in counts}) == min(stop, len(lengths))
    groups = made.by_task_and_length()
    assert sorted(position for positions in groups.values() for position in positions) == list(range(num_examples))
    for (task, length), positions in groups.items():
        assert {(made.examples[at].task, made.examples[at].length) for at in positions} == {(task, length)}


def test_depths_are_evenly_spread_within_each_combination_and_over_all():
    made = make(lengths=[250, 260], num_examples=36)
    for positions in made.by_task_and_length().values():
        depths = sorted(made.examples[at].depth for at in positions)
        assert [int(depth * 3) for depth in depths] == [0, 1, 2]
    assert sorted(round(example.depth * 36 - 0.5, 6) for example in made.examples) == list(range(36))


def test_a_long_example_is_really_long_and_half_of_the_needles_lie_far_back():
    made = make(tasks=["niah_single_1", "niah_multikey_2"], lengths=[8192], num_examples=8)
    assert all(8192 * 0.99 < len(example.input_ids) <= 8192 for example in made.examples)
    distances = sorted(example.distance for example in made.examples)
    assert distances[4] > 4000
    assert made.share_beyond(distances[3]) == 0.5
    assert made.share_beyond(0) == 1.0
    assert made.share_beyond(8192) == 0.0


def test_the_same_seed_gives_the_same_examples_in_another_process_and_other_seeds_others():
    first = make()
    assert make() == first
    fingerprints = {
        make(seed=seed, split=split).fingerprint for seed in (3, 4, 5) for split in ("calibration", "heldout")
    }
    assert len(fingerprints) == 6
    code = "import test_generator as t; print(t.make().fingerprint)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == first.fingerprint


def test_more_examples_begin_with_the_same_texts_but_for_their_depths():
    few, many = make(num_examples=6), make(num_examples=12)
    assert [example.answer for example in few.examples] == [example.answer for example in many.examples[:6]]


def test_a_users_text_is_the_haystack():
    text = 'Xenia went home.  \n\n Yann stayed there! "Zoe?" he said. '
    example = make(tasks=["niah_single_2"], num_examples=1, haystack_text=text).examples[0]
    body = example.prompt.split("\n")[1]
    assert set(NEEDLE.sub("", body).split()) == set(text.split())
    before, after = NEEDLE.split(body)[0].strip(), NEEDLE.split(body)[-1].strip()
    assert not before or before[-1] in '.!?"'
    assert not after or after.startswith(("Xenia", "Yann", '"Zoe', "he"))


def test_no_network_is_needed(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert len(make(num_examples=12)) == 12


def test_importing_it_loads_neither_torch_nor_transformers():
    code = "import sys, bosch.calibration; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ["niah_singel_1"]}, "unknown task 'niah_singel_1'; did you mean 'niah_single_1'"),
        ({"tasks": []}, "no task was given; known: niah_single_1"),
        ({"split": "test"}, "unknown split 'test'"),
        ({"lengths": []}, "no length was given"),
        ({"lengths": [0]}, "a length must be an integer of at least 1 token, got 0"),
        ({"lengths": [256.0]}, r"got 256\.0"),
        ({"num_examples": 0}, "must be an integer of at least 1, got 0"),
        ({"num_examples": True}, "got True"),
        ({"lengths": [60]}, r"length 60 is too short for niah_single_1: .* alone take \d+ tokens"),
        ({"haystack_text": " \n\t"}, "the haystack text has no words"),
    ],
)
def test_mistakes_are_refused_in_one_sentence(changes, message):
    with pytest.raises(BoschError, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


def test_the_shortest_length_that_the_message_names_is_enough():
    with pytest.raises(BoschError) as caught:
        make(tasks=["niah_multikey_1"], lengths=[60], num_examples=1)
    least = int(re.search(r"take (\d+) tokens", str(caught.value))[1])
    assert len(make(tasks=["niah_multikey_1"], lengths=[least], num_examples=1)) == 1
    with pytest.raises(BoschError, match="too short"):
        make(tasks=["niah_multikey_1"], lengths=[least - 1], num_examples=1)


@given(costs=st.lists(st.integers(1, 40), min_size=1, max_size=300), base=st.integers(1, 50), room=st.integers(0, 900))
def test_the_largest_fit_is_that_of_trying_all(costs, base, room):
    def num_tokens(units):
        return base + sum(costs[at % len(costs)] for at in range(units))

    expected = 0
    while num_tokens(expected + 1) <= base + room:
        expected += 1
    assert largest_fit(num_tokens, base + room) == expected


def test_fitting_looks_at_few_texts():
    looks = []

    def num_tokens(units):
        looks.append(units)
        return 90 + units + units // 3 + units // 100

    assert num_tokens(largest_fit(num_tokens, 32_768)) <= 32_768
    assert len(looks) <= 9

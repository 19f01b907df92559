"""Words, numbers and uuids, and who may use them; texts cut into segments."""

import itertools
import random
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.calibration.haystack import cut, insert, prose_segments, shipped_prose, split_prose
from bosch.calibration.items import KINDS, draw_items, words
from bosch.errors import BoschError


def draw(kind, split, seed, count):
    return list(itertools.islice(draw_items(kind, split, random.Random(seed)), count))


@pytest.mark.parametrize("part", ["adjectives", "nouns"])
def test_the_word_lists_are_long_sorted_plain_and_without_repeats(part):
    listed = words(part)
    assert len(listed) >= 300
    assert list(listed) == sorted(set(listed))
    assert all(re.fullmatch("[a-z]{3,9}", word) for word in listed)
    assert not set(words("adjectives")) & set(words("nouns"))


def test_items_have_the_benchmarks_forms():
    assert all(re.fullmatch("[a-z]+-[a-z]+", item) for item in draw("words", "calibration", 0, 50))
    assert all(re.fullmatch(r"[1-9]\d{6}", item) for item in draw("numbers", "calibration", 0, 50))
    assert all(uuid.UUID(item).version == 4 for item in draw("uuids", "heldout", 0, 50))


@pytest.mark.parametrize("kind", KINDS)
@given(seeds=st.tuples(st.integers(), st.integers()))
def test_items_differ_within_a_split_and_are_never_shared_between_two(kind, seeds):
    ours, theirs = draw(kind, "calibration", seeds[0], 60), draw(kind, "heldout", seeds[1], 60)
    assert len(set(ours)) == len(set(theirs)) == 60
    assert not set(ours) & set(theirs)


def test_each_split_owns_about_half_of_all_word_keys():
    whole = len(words("adjectives")) * len(words("nouns"))
    rng = random.Random(0)
    sample = {KINDS["words"](rng) for _ in range(4000)}
    ours = sample & set(draw("words", "calibration", 1, whole // 4))
    # A quarter of all keys are half of those that calibration owns.
    assert 0.2 < len(ours) / len(sample) < 0.3


def test_unknown_kind_and_split_are_refused():
    with pytest.raises(BoschError, match="unknown item kind 'number'; did you mean 'numbers'"):
        draw("number", "calibration", 0, 1)
    with pytest.raises(BoschError, match="unknown split 'held-out'; did you mean 'heldout'"):
        draw("words", "held-out", 0, 1)


def test_the_shipped_prose_is_varied_and_clean():
    sentences = split_prose(shipped_prose())
    assert len(set(sentences)) > 3000
    assert shipped_prose().isascii()
    assert "#" not in shipped_prose()
    assert "special magic" not in shipped_prose()


def test_cut_and_insert_by_hand():
    segments = (("a", "b"), ("c",), ("d", "e", "f"))
    assert cut(segments, 0) == []
    assert cut(segments, 3) == ["a b", "c"]
    assert cut(segments, 5) == ["a b", "c", "d e"]
    assert insert(["a b", "c", "d e"], ["N"], [0.0]) == ["N", "a b", "c", "d e"]
    assert insert(["a b", "c", "d e"], ["N"], [1.0]) == ["a b", "c", "d e", "N"]
    assert insert(["a b", "c", "d e"], ["N", "M", "O"], [0.7, 0.3, 0.65]) == ["a b", "M", "c", "O", "N", "d e"]
    assert insert([], ["N", "M"], [0.9, 0.1]) == ["M", "N"]


def test_prose_goes_round():
    sentences = split_prose("One. Two is more! Three?")
    assert [" ".join(s) for s in itertools.islice(prose_segments(sentences, 2), 5)] == [
        "Three?",
        "One.",
        "Two is more!",
        "Three?",
        "One.",
    ]


@given(st.text())
def test_splitting_prose_keeps_every_word(text):
    if text.split():
        assert [word for sentence in split_prose(text) for word in sentence] == text.split()
    else:
        with pytest.raises(BoschError, match="no words"):
            split_prose(text)

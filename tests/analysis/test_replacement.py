import collections
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from masks_by_hand import LAYOUT, WINDOW, growing, sliding

from bosch.errors import BoschError
from bosch.experiments.replacement import replace_randomly, score_replacements
from bosch.heads import HeadLayout, HeadMask
from bosch.scoring.objective import Score

SMALLER = sliding([(0, 0), (0, 1), (2, 2)])
LARGER = sliding([(2, head) for head in range(5)])
"""(0, 0) and (0, 1) departed."""


class Toy:
    """Scores a mask by the number of units of layer 2 that slide, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[HeadMask] = []

    def score(self, mask: HeadMask) -> Score:
        self.asked.append(mask)
        return Score((mask.localized_per_layer[2] == 5,), (5.0 - mask.localized_per_layer[2],))


def test_what_departed_takes_the_place_of_as_many_of_the_larger_choice():
    for seed in range(20):
        mask = replace_randomly(SMALLER, LARGER, seed)
        assert mask.localized_per_layer == (2, 0, 3, 0, 0)
        assert {(0, 0), (0, 1)} < mask.localized
        assert (mask.layout, mask.window, mask.sinks) == (LAYOUT, WINDOW, 0)


def test_every_choice_of_displaced_units_is_about_equally_likely():
    """10 pairs of 5 units, 1000 seeds: 100 each, give or take five standard deviations. (2, 2) may be displaced too,
    though it slides in both masks."""
    pairs = collections.Counter(
        LARGER.localized - replace_randomly(SMALLER, LARGER, seed).localized for seed in range(1000)
    )
    assert len(pairs) == 10
    assert all(52 < count < 148 for count in pairs.values())


@given(growing(least_departed=1), st.integers(0, 5))
def test_the_ratio_stays_and_nothing_new_comes_in(pair, seed):
    smaller, larger = pair
    departed = smaller.localized - larger.localized
    mask = replace_randomly(smaller, larger, seed)
    assert mask.num_localized == larger.num_localized
    assert departed <= mask.localized <= departed | larger.localized
    assert mask == replace_randomly(smaller, larger, seed)


@pytest.mark.slow
def test_a_seed_means_the_same_in_every_process():
    code = (
        "from bosch.experiments.replacement import replace_randomly\nfrom bosch.heads import HeadLayout, HeadMask\n"
        f"full = HeadMask.all_full(HeadLayout({LAYOUT.units_per_layer}), {WINDOW})\n"
        f"masks = [full.localize(units) for units in {[sorted(mask.localized) for mask in (SMALLER, LARGER)]}]\n"
        "print([replace_randomly(*masks, seed).key() for seed in range(5)])"
    )
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert found.stdout == f"{[replace_randomly(SMALLER, LARGER, seed).key() for seed in range(5)]}\n"


def test_each_replacement_is_scored_once_beside_the_original():
    scorer = Toy()
    original, found = score_replacements(SMALLER, LARGER, scorer, num_seeds=3)
    assert (original.accuracy, original.nll) == (1.0, 0.0)
    assert [(one.seed, one.score.accuracy, one.score.nll) for one in found] == [(seed, 0.0, 2.0) for seed in range(3)]
    assert [one.mask for one in found] == [replace_randomly(SMALLER, LARGER, seed) for seed in range(3)]
    assert scorer.asked == [LARGER, *(one.mask for one in found)]


@pytest.mark.parametrize(
    ("smaller", "larger", "message"),
    [
        (
            sliding([(0, 0)]),
            sliding([(0, 0), (2, 1)]),
            "all 1 units that slide in the smaller mask slide in the larger",
        ),
        (LARGER, SMALLER, r"got 5 of 11 KV heads sliding .* and 3 of 11 KV heads sliding"),
        (
            SMALLER,
            sliding([(2, head) for head in range(5)], window=11),
            "with window 7 and 0 sinks, the larger with window 11",
        ),
        (
            sliding([(0, 0)]),
            sliding([(2, head) for head in range(5)]).give_window(9, [2]),
            "with window 7 and 0 sinks, the larger with window 9",
        ),
        (
            SMALLER,
            sliding([(0, head) for head in range(5)], HeadLayout((5, 2))),
            r"needs two masks of one model, .* got 3 of 11 KV heads sliding .* and 5 of 7 KV heads sliding",
        ),
    ],
    ids=["nested", "exchanged", "window", "layer windows", "layout"],
)
def test_nothing_is_scored_where_the_test_makes_no_sense(smaller, larger, message):
    scorer = Toy()
    with pytest.raises(BoschError, match=message):
        score_replacements(smaller, larger, scorer, num_seeds=3)
    assert scorer.asked == []

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from masks_by_hand import masks, sliding

from bosch.analysis.overlap import chance_distance, distance_matrix, jaccard_distance
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask

A = sliding([(0, 0), (0, 1), (2, 4)])
B = sliding([(0, 1), (2, 4), (3, 0), (4, 0)])
C = sliding([(2, 0), (2, 1)])
NOTHING = sliding([])


def test_distance_of_sets_worked_out_by_hand():
    """A and B share (0, 1) and (2, 4); together they have five units."""
    assert jaccard_distance(A, B) == pytest.approx(1 - 2 / 5)
    assert jaccard_distance(A, C) == 1
    assert jaccard_distance(A, A) == 0


def test_it_is_the_sliding_units_that_are_compared_and_not_the_full_ones():
    assert jaccard_distance(C, sliding([(2, 0), (2, 1), (2, 2)])) == pytest.approx(1 / 3)


def test_two_masks_that_localize_nothing_are_the_same_choice():
    assert jaccard_distance(NOTHING, NOTHING) == 0
    assert jaccard_distance(NOTHING, A) == 1


def test_window_and_sinks_play_no_part():
    assert jaccard_distance(A, HeadMask(A.layout, A.full, window=31, sinks=5)) == 0


def test_layouts_must_be_the_same_and_both_are_named():
    other = sliding([(0, 0)], HeadLayout((3, 0, 5, 2)))
    with pytest.raises(BoschError, match=r"one has 5 layers with 3, 0, 5, 2, 1 KV heads, another 4 layers with 3, 0, "):
        jaccard_distance(A, other)
    with pytest.raises(BoschError, match="masks of different models"):
        distance_matrix([A, B, other])


def test_matrix_has_every_pair_in_its_place():
    assert distance_matrix([A, B, C]) == (
        (0, pytest.approx(3 / 5), 1),
        (pytest.approx(3 / 5), 0, 1),
        (1, 1, 0),
    )
    assert distance_matrix([]) == ()


@given(masks(), masks(), masks())
def test_it_is_a_metric_that_counts_the_characters_of_the_keys(first, second, third):
    pairs = list(zip(first.key(), second.key(), strict=True))
    both, either = pairs.count(("0", "0")), sum("0" in pair for pair in pairs)
    assert jaccard_distance(first, second) == pytest.approx(1 - both / either if either else 0)
    assert jaccard_distance(first, second) == jaccard_distance(second, first)
    assert (jaccard_distance(first, second) == 0) == (first == second)
    assert jaccard_distance(first, third) <= jaccard_distance(first, second) + jaccard_distance(second, third) + 1e-12


@pytest.mark.parametrize(("size", "other"), [(0, 0), (0, 2), (2, 3), (3, 3), (5, 4), (7, 7)])
def test_chance_is_the_mean_over_all_pairs_of_sets(size, other):
    pairs = [
        (set(first), set(second))
        for first in itertools.combinations(range(7), size)
        for second in itertools.combinations(range(7), other)
    ]
    distances = [1 - Fraction(len(a & b), len(a | b)) if a | b else Fraction(0) for a, b in pairs]
    assert chance_distance(7, size, other) == pytest.approx(float(sum(distances) / len(distances)))


def test_chance_of_a_model_of_the_papers_size():
    """320 units, half of them: near 1 - rho / (2 - rho) = 2/3. Binomials of that size are no floats."""
    assert chance_distance(320, 160, 160) == pytest.approx(2 / 3, abs=2e-3)
    assert chance_distance(2000, 1000, 1000) == pytest.approx(2 / 3, abs=5e-4)

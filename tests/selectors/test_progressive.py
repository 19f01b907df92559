import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyScorer, ignore

from bosch.heads import HeadLayout
from bosch.scoring.objective import Objective
from bosch.selectors.method import Problem
from bosch.selectors.progressive import Progressive

LAYOUT = HeadLayout((2, 3, 0, 2))
UNITS = list(LAYOUT.units())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 2), min_size=7, max_size=7), st.sampled_from([0.25, 0.5, 0.75, 1]))
def test_units_that_do_not_meet_are_ranked_exactly(weights, ratio):
    """Where the units' costs only add up, the greedy must find the best mask of all."""
    scorer = ToyScorer(LAYOUT, dict(zip(UNITS, weights, strict=True)))
    selection = Progressive().select(Problem(Objective(scorer, "nll")), ratio, budget=1, seed=0, on_stage=ignore)
    assert selection.mask.num_localized == LAYOUT.num_localized(ratio)
    assert scorer.nll(selection.mask) == pytest.approx(scorer.best(selection.mask.num_localized))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.data())
def test_steps_are_the_same_whatever_the_target(num_units, data):
    """At most 24, of equal shares of all units; a target between two of them is one more."""
    target = data.draw(st.integers(0, num_units))
    shares = {math.ceil(Fraction(num_units * step, 24)) for step in range(1, 25)}
    expected = sorted({share for share in shares if share < target} | ({target} if target else set()))
    assert Progressive().goals(num_units, target) == expected


def test_a_larger_ratio_goes_by_the_masks_of_a_smaller_one():
    """So it asks only for what comes after: 2 of the cheapest for each unit that is to slide, and the masks between."""
    layout = HeadLayout((3,) * 16)
    weights = {unit: 1.0 + (7 * index) % 48 for index, unit in enumerate(layout.units())}
    scorer = ToyScorer(layout, weights)
    problem = Problem(Objective(scorer, "nll"))
    quarter = Progressive().select(problem, 0.25, budget=1, seed=0, on_stage=ignore)
    known = set(scorer.calls)
    half = Progressive().select(problem, 0.5, budget=1, seed=0, on_stage=ignore)
    assert [*quarter.path, quarter.mask] == list(half.path[: len(quarter.path) + 1])
    assert len(set(scorer.calls) - known) <= 2 * 12 + 6

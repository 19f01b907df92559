import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyScorer, ignore

from bosch.heads import HeadLayout
from bosch.objective import Objective
from bosch.selectors.contract import Problem
from bosch.selectors.progressive import progressive

LAYOUT = HeadLayout((2, 3, 0, 2))
UNITS = list(LAYOUT.units())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 2), min_size=7, max_size=7), st.sampled_from([0.25, 0.5, 0.75, 1]))
def test_units_that_do_not_meet_are_ranked_exactly(weights, ratio):
    """Where the units' costs only add up, the greedy must find the best mask of all."""
    scorer = ToyScorer(LAYOUT, dict(zip(UNITS, weights, strict=True)))
    selection = progressive(Problem(Objective(scorer, "nll")), ratio, budget=1, seed=0, on_stage=ignore)
    assert selection.mask.num_localized == LAYOUT.num_localized(ratio)
    assert scorer.nll(selection.mask) == pytest.approx(scorer.best(selection.mask.num_localized))


def test_masks_on_the_way_grow_and_are_kept():
    scorer = ToyScorer(LAYOUT, {unit: 0.1 * index for index, unit in enumerate(UNITS)})
    selection = progressive(Problem(Objective(scorer, "nll")), 0.8, budget=1, seed=0, on_stage=ignore)
    counts = [mask.num_localized for mask in selection.path]
    assert counts == sorted(set(counts))
    for smaller, larger in itertools.pairwise([*selection.path, selection.mask]):
        assert smaller.localized < larger.localized


def test_measuring_again_sees_a_partner_that_slides_already():
    """(0, 0) and (0, 1) are the two cheapest apart and ruinous together: a ranking takes both, the greedy does not."""
    weights = dict.fromkeys(UNITS, 0.5) | {(0, 0): 0.01, (0, 1): 0.02, (1, 0): 0.03}
    scorer = ToyScorer(LAYOUT, weights, pairs={((0, 0), (0, 1)): 9.0})
    selection = progressive(Problem(Objective(scorer, "nll")), 2 / 7, budget=1, seed=0, on_stage=ignore)
    assert selection.mask.localized == {(0, 0), (1, 0)}


def test_swaps_mend_what_the_greedy_got_wrong():
    """The two cheapest are taken in one batch and are ruinous together; one of them has to be given back."""
    layout = HeadLayout((4, 4, 4))
    weights = {unit: 0.3 + 0.01 * index for index, unit in enumerate(layout.units())} | {(0, 0): 0.01, (1, 0): 0.02}
    scorer = ToyScorer(layout, weights, pairs={((0, 0), (1, 0)): 5.0})
    selection = progressive(Problem(Objective(scorer, "nll")), 0.75, budget=20, seed=0, on_stage=ignore)
    assert scorer.nll(selection.mask) == pytest.approx(scorer.best(9))
    assert selection.record["score"] > selection.record["score_before_swaps"]
    assert len(selection.record["swaps"]) == 1


def test_the_budget_bounds_the_swaps():
    scorer = ToyScorer(LAYOUT, {unit: 1.0 / (1 + index) for index, unit in enumerate(UNITS)})
    for budget in (1, 5, 8):
        selection = progressive(Problem(Objective(scorer, "nll")), 0.5, budget=budget, seed=0, on_stage=ignore)
        steps = sum(1 + step["measured"] for step in selection.record["steps"])
        assert selection.record["evaluations"] <= max(steps, budget * 3)

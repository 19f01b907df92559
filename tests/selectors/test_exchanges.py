"""How both greedy methods end, and what their ways have in common."""

import itertools

import pytest
from toy import ToyScorer, ignore

from bosch.heads import HeadLayout
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS
from bosch.selectors.method import Problem, Selection

LAYOUT = HeadLayout((2, 3, 0, 2))
UNITS = list(LAYOUT.units())

pytestmark = pytest.mark.parametrize("method", ["progressive", "floating"])


def run(method: str, scorer: ToyScorer, ratio: float, budget: int = 1, share: float = 1.0) -> Selection:
    problem = Problem(Objective(scorer, "nll"), share_of_exchanges=share)
    return METHODS[method]().select(problem, ratio, budget=budget, seed=0, on_stage=ignore)


def test_masks_on_the_way_grow_and_are_kept(method):
    scorer = ToyScorer(LAYOUT, {unit: 0.1 * index for index, unit in enumerate(UNITS)})
    selection = run(method, scorer, 0.8)
    masks = [*selection.path, selection.mask]
    assert all(smaller.localized < larger.localized for smaller, larger in itertools.pairwise(masks))


def test_measuring_again_sees_a_partner_that_slides_already(method):
    """(0, 0) and (0, 1) are the two cheapest apart and ruinous together: a ranking takes both."""
    weights = dict.fromkeys(UNITS, 0.5) | {(0, 0): 0.01, (0, 1): 0.02, (1, 0): 0.03}
    scorer = ToyScorer(LAYOUT, weights, pairs={((0, 0), (0, 1)): 9.0})
    assert run(method, scorer, 2 / 7).mask.localized == {(0, 0), (1, 0)}


def test_exchanges_mend_what_going_forward_got_wrong(method):
    """(0, 0) is the cheapest and ruinous with both that come next."""
    weights = dict.fromkeys(UNITS, 1.0) | {(0, 0): 0.1, (1, 0): 0.2, (3, 0): 0.3}
    scorer = ToyScorer(LAYOUT, weights, pairs={((0, 0), (1, 0)): 0.7, ((0, 0), (3, 0)): 0.8})
    greedy, exchanged = run(method, scorer, 2 / 7, budget=1), run(method, scorer, 2 / 7, budget=20)
    assert greedy.mask.localized == {(0, 0), (1, 0)}
    assert exchanged.mask.localized == {(1, 0), (3, 0)}
    assert scorer.nll(exchanged.mask) == pytest.approx(scorer.best(2))
    assert [change["full"] for change in exchanged.record["exchanges"]] == [[0, 0]]
    assert exchanged.record["score"] > exchanged.record["score_before_exchanges"]


def test_the_record_says_what_each_unit_cost_when_it_slid(method):
    """Nothing meets here: a unit costs its weight, as a share of what all cost."""
    weights = {unit: 0.5 + 0.1 * index for index, unit in enumerate(UNITS)}
    selection = run(method, ToyScorer(LAYOUT, weights), 1)
    steps = selection.record["steps"]
    costs = {tuple(unit): cost for step in steps for unit, cost in zip(step["units"], step["costs"], strict=True)}
    assert costs == pytest.approx({unit: weight / sum(weights.values()) for unit, weight in weights.items()})


def test_the_budget_bounds_the_exchanges(method):
    scorer = ToyScorer(LAYOUT, {unit: 1.0 / (1 + index) for index, unit in enumerate(UNITS)})
    without = run(method, scorer, 0.5).record["measurements"]
    for budget in (4, 6, 9):
        most_of_one_exchange = 1 + len(UNITS)
        spent = run(method, scorer, 0.5, budget).record["measurements"]
        assert spent <= max(without, 3 * budget + most_of_one_exchange)


def test_ratios_of_one_search_share_the_exchanges(method):
    """What the way to the mask leaves of the budget is divided; the way itself is not."""
    scorer = ToyScorer(LAYOUT, {unit: 1.0 / (1 + index) for index, unit in enumerate(UNITS)})
    way = run(method, scorer, 0.5).record["measurements"]
    for budget in (20, 40):
        spent = run(method, scorer, 0.5, budget, share=0.25).record["measurements"]
        most_of_one_exchange = 1 + len(UNITS)
        assert spent <= way + (3 * budget - way) // 4 + most_of_one_exchange
        assert spent > way

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyScorer, ignore

from bosch.errors import BoschError
from bosch.heads import HeadLayout, quota
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS
from bosch.selectors.method import Problem
from bosch.selectors.stages.ablations import BoschLayer, BoschMulti, BoschSingle, even_quotas

LAYOUT = HeadLayout((3, 0, 3, 3))
UNITS = list(LAYOUT.units())
WEIGHTS = {unit: 0.1 + 0.07 * (index * index % 11) + 0.001 * index for index, unit in enumerate(UNITS)}


def problem(weights=WEIGHTS, pairs=None, layout=LAYOUT) -> Problem:
    return Problem(Objective(ToyScorer(layout, weights, pairs), "nll"))


@given(st.fractions(0, 1), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_even_quotas_sum_to_the_budget_and_stay_near_their_share(ratio, counts):
    quotas = even_quotas(float(ratio), counts)
    assert sum(quotas) == quota(float(ratio), sum(counts))
    for ones, count in zip(quotas, counts, strict=True):
        assert 0 <= ones <= count
        assert abs(ones - ratio * count) < 1 + 1e-6


def test_single_takes_the_cheapest_of_each_layer():
    """Five of nine units: quotas 2, 2, 1 by cumulative rounding of 1.67 + 1.67 + 1.67."""
    selection = BoschSingle().select(problem(), 5 / 9, budget=100, seed=0, on_stage=ignore)
    expected = set()
    for layer, ones in ((0, 2), (2, 2), (3, 1)):
        expected |= set(sorted((unit for unit in UNITS if unit[0] == layer), key=WEIGHTS.get)[:ones])
    assert selection.mask.localized == expected


def test_multi_is_free_to_choose_the_layers_within_a_group():
    """All nine units fit into one group: with costs that only add up, the best mask of all."""
    selection = BoschMulti().select(problem(), 5 / 9, budget=100, seed=0, on_stage=ignore)
    assert selection.mask.localized == set(sorted(UNITS, key=WEIGHTS.get)[:5])
    assert selection.record["searches"][0]["layers"] == [0, 2, 3]


@pytest.mark.parametrize("ratio", [0, 0.1, 1 / 3, 0.4, 0.5, 2 / 3, 0.75, 1])
def test_layer_tries_every_choice_of_whole_layers(ratio):
    """By brute force: the best whole layers, then the best layer for the units that are left over."""
    pairs = {((0, 0), (2, 1)): 2.0, ((2, 0), (3, 2)): 0.3}
    given_problem = problem(pairs=pairs)
    scorer = given_problem.objective.scorer
    whole, left = divmod(LAYOUT.num_localized(ratio), 3)
    layers = LAYOUT.eligible_layers

    def slide(chosen, rest=()):
        return scorer.full.localize([*((layer, head) for layer in chosen for head in range(3)), *rest])

    best = min((slide(chosen) for chosen in itertools.combinations(layers, whole)), key=scorer.nll)
    if left:
        candidates = [layer for layer in layers if all(best.full[layer])]
        rest = min(candidates, key=lambda layer: scorer.nll(best.localize((layer, h) for h in range(left))))
        best = best.localize((rest, head) for head in range(left))
    selection = BoschLayer().select(given_problem, ratio, budget=100, seed=0, on_stage=ignore)
    assert scorer.nll(selection.mask) == pytest.approx(scorer.nll(best))
    assert selection.mask.num_localized == LAYOUT.num_localized(ratio)


def test_layer_refuses_layers_that_cannot_be_exchanged():
    with pytest.raises(BoschError, match="equal numbers of units, this model has 2 layers with 3, 2 KV heads"):
        BoschLayer().select(problem({}, layout=HeadLayout((3, 2))), 0.5, budget=1, seed=0, on_stage=ignore)


@pytest.mark.parametrize("method", ["progressive", "bosch", "bosch-single", "bosch-multi", "bosch-layer"])
@pytest.mark.parametrize("ratio", [0, 0.2, 0.5, 0.875, 1])
def test_every_search_meets_the_budget_exactly(method, ratio):
    selection = METHODS[method]().select(problem(), ratio, budget=5, seed=0, on_stage=ignore)
    assert selection.mask.num_localized == quota(ratio, 9)
    assert selection.record["method"] == method
    assert METHODS[method]().select(problem(), ratio, budget=5, seed=0, on_stage=ignore).mask == selection.mask

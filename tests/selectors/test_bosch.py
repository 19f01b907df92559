import itertools
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyScorer, ignore

from bosch.heads import HeadLayout, quota
from bosch.scoring.objective import Objective
from bosch.selectors.method import Problem
from bosch.selectors.stages.groups import make_groups, select_in_groups
from bosch.selectors.stages.importance import layer_importance
from bosch.selectors.stages.ratios import adaptive_ratios, levels_of, relative_drops
from bosch.selectors.stages.three_stages import Bosch
from marks import slow_after

LAYOUT = HeadLayout((3, 3, 3))


def test_stage_1_goes_from_the_top_down_and_keeps_what_it_found():
    weights = {(0, 0): 1.0, (0, 1): 0.5, (0, 2): 2.0, (1, 1): 0.3, (2, 0): 0.2, (2, 1): 0.4}
    scorer = ToyScorer(LAYOUT, weights)
    importance = layer_importance(Objective(scorer, "nll"), {0: 2, 1: 2, 2: 2}, budget=100, seed=0, on_stage=ignore)
    # two of three units of each layer: the cheapest pairs cost 0.2 (layer 2), 0 (layer 1), 1.5 (layer 0); range 4.4
    assert importance.mask.localized == {(2, 0), (2, 2), (1, 0), (1, 2), (0, 0), (0, 1)}
    assert importance.scores == pytest.approx({2: 1 - 0.2 / 4.4, 1: 1 - 0.2 / 4.4, 0: 1 - 1.7 / 4.4})
    assert [search["layer"] for search in importance.searches] == [2, 1, 0]
    assert all(search["evaluations"] == 3 and search["optimizer"] == "brute-force" for search in importance.searches)


def test_relative_drops_by_hand():
    """From 1 to 0.8 is a fifth, from 0.8 to 0.6 a quarter; a rise is no drop."""
    assert relative_drops({2: 0.8, 1: 0.6, 0: 0.7}) == pytest.approx({2: 0.2, 1: 0.25, 0: 0.0})


@pytest.mark.parametrize(
    ("units", "levels"),
    [(1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (4, [0, 1, 2, 3, 4]), (8, [0, 2, 4, 6, 8]), (5, [0, 1, 3, 4, 5])],
)
def test_levels_are_the_quarters_in_whole_units(units, levels):
    assert levels_of(units) == levels


def test_stage_2_by_hand():
    """Eight layers of four units at one half: five buckets, the easiest layers at 4, the hardest at 0; 16 in all."""
    scores = {7: 1.0, 6: 0.9, 5: 0.88, 4: 0.5, 3: 0.49, 2: 0.3, 1: 0.29, 0: 0.28}
    ratios = adaptive_ratios(scores, dict.fromkeys(range(8), 4), 16, gamma=0.2)
    # weights: 7: 0, 6: .5, 5: .11, 4: 1, 3: .1, 2: 1, 1: .167, 0: .172; easiest first 7 3 5 1 0 6 2 4
    assert ratios.weights == pytest.approx(
        {7: 0, 6: 0.5, 5: 0.02 / 0.9 / 0.2, 4: 1, 3: 0.1, 2: 1, 1: 0.01 / 0.3 / 0.2, 0: 0.01 / 0.29 / 0.2}
    )
    # ranks over eight in five buckets: 7 3 -> 4, 5 1 -> 3, 0 -> 2, 6 2 -> 1, 4 -> 0: 18 units, two too many;
    # from the hardest down: 4 is at 0 already, 2 goes to 0, 6 goes to 0
    assert ratios.quotas == {7: 4, 3: 4, 5: 3, 1: 3, 0: 2, 6: 0, 2: 0, 4: 0}


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(-2, 2)), min_size=1, max_size=20),
    st.fractions(0, 1),
)
def test_stage_2_always_meets_the_budget_and_is_the_same_again(layers, ratio):
    units = {layer: count for layer, (count, _) in enumerate(layers)}
    scores = {layer: score for layer, (_, score) in enumerate(layers)}
    target = quota(float(ratio), sum(units.values()))
    ratios = adaptive_ratios(scores, units, target, gamma=0.2)
    assert sum(ratios.quotas.values()) == target
    assert all(0 <= ratios.quotas[layer] <= units[layer] for layer in units)
    assert all(0 <= weight <= 1 for weight in ratios.weights.values())
    assert adaptive_ratios(scores, units, target, gamma=0.2) == ratios


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=40))
def test_groups_hold_equal_ratios_largest_first_and_at_most_fifty_units(layers):
    units = [count for count, _ in layers]
    ratios = {layer: Fraction(min(ones, count), count) for layer, (count, ones) in enumerate(layers)}
    groups = make_groups(ratios, units)
    assert sorted(layer for group in groups for layer in group) == [layer for layer, r in ratios.items() if 0 < r < 1]
    order = [ratios[group[0]] for group in groups]
    assert order == sorted(order, reverse=True)
    for group in groups:
        assert len({ratios[layer] for layer in group}) == 1
        assert len(group) == 1 or sum(units[layer] for layer in group) <= 50


def test_fifty_variables_are_six_layers_of_eight():
    """Twenty layers of one ratio: four equal groups of five."""
    groups = make_groups(dict.fromkeys(range(20), Fraction(1, 2)), [8] * 20)
    assert [len(group) for group in groups] == [5, 5, 5, 5]


def test_stage_3_finds_pairs_that_stage_1_cannot_see():
    """Units (0, 0) and (1, 0) are free alone and dear together; the joint search must part them."""
    scorer = ToyScorer(
        HeadLayout((2, 2)), {(0, 1): 0.1, (1, 1): 0.3}, pairs={((0, 0), (1, 0)): 5.0, ((0, 1), (1, 1)): 1.0}
    )
    mask, searches = select_in_groups(
        Objective(scorer, "nll"), {0: 1, 1: 1}, scorer.full, budget=100, seed=0, on_stage=ignore
    )
    assert mask.localized == {(0, 1), (1, 0)}
    assert searches[0]["evaluations"] == 4


@pytest.mark.parametrize("ratio", [0, 0.25, 0.5, 0.75, 0.875, 1])
def test_bosch_meets_the_budget_exactly_and_records_every_choice(ratio):
    weights = {unit: 0.1 + 0.01 * index for index, unit in enumerate(LAYOUT.units())}
    scorer = ToyScorer(LAYOUT, weights)
    selection = Bosch().select(Problem(Objective(scorer, "nll")), ratio, budget=10, seed=0, on_stage=ignore)
    assert selection.mask.num_localized == quota(ratio, 9)
    quotas = selection.record["stage_2"]["quotas"]
    assert [quotas[str(layer)] for layer in range(3)] == list(selection.mask.localized_per_layer)
    assert set(selection.record) == {"method", "budget_per_layer", "stage_1", "stage_2", "stage_3"}
    again = Bosch().select(
        Problem(Objective(ToyScorer(LAYOUT, weights), "nll")), ratio, budget=10, seed=0, on_stage=ignore
    )
    assert again.mask == selection.mask


def test_stage_2_spares_the_layers_whose_drop_reached_gamma():
    """Six layers of four units at three quarters, 18 of 24. Easiest first 3 5 4 2 0 1 in five buckets: 4 4 3 2 1 0,
    four too few. Layer 1 has weight 1 and stays at 0 while others can rise: 4 to 4, 2 to 3, 0 to 2, then 2 to 4."""
    scores = {5: 0.999, 4: 0.995, 3: 0.995, 2: 0.98, 1: 0.72, 0: 0.59}
    ratios = adaptive_ratios(scores, dict.fromkeys(range(6), 4), 18, gamma=0.2)
    assert ratios.weights[1] == 1
    assert ratios.weights[0] == pytest.approx(0.13 / 0.72 / 0.2)
    assert ratios.quotas == {3: 4, 5: 4, 4: 4, 2: 4, 0: 2, 1: 0}


@pytest.mark.parametrize("kind", ["nll", "accuracy"])
@pytest.mark.parametrize("seed", slow_after(1, range(3)))
def test_giving_up_masks_that_cannot_be_the_best_changes_nothing(kind, seed):
    """Four layers of eight units with random weights and pairs; a scorer that gives up, and one that never does."""

    class Patient(ToyScorer):
        def score_while(self, mask, is_wanted):
            return self.score(mask), True

    class GivingUp(ToyScorer):
        given_up = 0

        def score_while(self, mask, is_wanted):
            score, is_exact = super().score_while(mask, is_wanted)
            self.given_up += not is_exact
            return score, is_exact

    rng, layout = random.Random(seed), HeadLayout((8,) * 4)
    weights = {unit: rng.random() for unit in layout.units()}
    pairs = {pair: rng.random() for pair in itertools.combinations(layout.units(), 2) if rng.random() < 0.1}
    patient, giving_up = Patient(layout, weights, pairs), GivingUp(layout, weights, pairs)
    whole, raced = (
        Bosch().select(Problem(Objective(scorer, kind)), 0.5, budget=30, seed=seed, on_stage=ignore)
        for scorer in (patient, giving_up)
    )
    assert raced.mask == whole.mask
    assert without_seconds(raced.record) == without_seconds(whole.record)
    assert giving_up.calls == patient.calls
    assert giving_up.given_up > 0


def without_seconds(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: without_seconds(value) for name, value in data.items() if name != "own_seconds"}
    return [without_seconds(one) for one in data] if isinstance(data, list) else data

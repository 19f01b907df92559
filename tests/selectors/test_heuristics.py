import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyScorer, ignore

from bosch.heads import HeadLayout, quota
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS
from bosch.selectors.method import Problem

HEURISTICS = ["random-layers", "bme", "intr"]


def select(method: str, units: tuple[int, ...], ratio: float, seed: int = 0):
    problem = Problem(Objective(ToyScorer(HeadLayout(units), {}), "nll"))
    return METHODS[method]().select(problem, ratio, budget=1, seed=seed, on_stage=ignore).mask


def full_layers(mask) -> list[int]:
    return [layer for layer, row in enumerate(mask.full) if row and all(row)]


@pytest.mark.parametrize(
    ("ratio", "layers"),
    [(0.5, [1, 3, 5, 7, 9, 11]), (0.75, [3, 7, 11]), (2 / 3, [2, 5, 8, 11]), (11 / 12, [11]), (0, list(range(12)))],
)
def test_interleaved_layers_end_their_periods(ratio, layers):
    assert full_layers(select("intr", (3,) * 12, ratio)) == layers


@pytest.mark.parametrize(
    ("ratio", "layers"),
    [
        (0.5, [0, 1, 5, 6, 10, 11]),
        (0.75, [0, 5, 11]),
        (11 / 12, [0]),
        (10 / 12, [0, 11]),
        (7 / 12, [0, 1, 5, 10, 11]),
    ],
)
def test_begin_middle_and_end(ratio, layers):
    assert full_layers(select("bme", (3,) * 12, ratio)) == layers


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))), st.sampled_from(["bme", "intr"]))
def test_patterns_are_different_layers(sizes, method):
    num_layers, num_full = sizes
    chosen = METHODS[method]().pattern(num_layers, num_full, seed=0)
    assert len(set(chosen)) == len(chosen) == num_full
    assert set(chosen) <= set(range(num_layers))


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=15).filter(any),
    st.fractions(0, 1),
    st.sampled_from(HEURISTICS),
)
def test_whole_layers_but_for_one_and_the_budget_exactly(units, ratio, method):
    mask = select(method, tuple(units), float(ratio))
    assert mask.num_localized == quota(float(ratio), sum(units))
    assert sum(0 < count < units[layer] for layer, count in enumerate(mask.localized_per_layer)) <= 1


def test_random_layers_follow_the_seed_and_spread():
    chosen = {seed: full_layers(select("random-layers", (2,) * 8, 0.5, seed)) for seed in range(30)}
    assert all(len(layers) == 4 for layers in chosen.values())
    assert full_layers(select("random-layers", (2,) * 8, 0.5, 3)) == chosen[3]
    counts = [sum(layer in layers for layers in chosen.values()) for layer in range(8)]
    assert min(counts) >= 7  # 15 expected of each
    state = random.getstate()
    select("random-layers", (2,) * 8, 0.5, 3)
    assert random.getstate() == state

"""The ablation B-single (paper 3.4): stage 1 alone, and its mask is the result."""

from collections.abc import Sequence

from bosch.heads import quota
from bosch.selectors.bosch.importance import layer_importance
from bosch.selectors.contract import Problem, Selection, StageListener


def bosch_single(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Search one layer after the other, from the top down; arguments as in `Selector`.

    The paper's `ceil(ratio * H)` units of every layer are more than `ceil(ratio * N)` in all where H is small; here the
    layers' quotas are rounded so that they sum to that.
    """
    layers = problem.layout.eligible_layers
    quotas = even_quotas(ratio, [problem.layout.units_per_layer[layer] for layer in layers])
    found = layer_importance(
        problem.objective,
        dict(zip(layers, quotas, strict=True)),
        budget=budget,
        seed=seed,
        on_stage=on_stage,
    )
    record = {
        "method": "bosch-single",
        "budget_per_layer": budget,
        "scores": {str(layer): found.scores[layer] for layer in layers},
        "searches": list(found.searches),
    }
    return Selection(found.mask, record)


def even_quotas(ratio: float, counts: Sequence[int]) -> list[int]:
    """For each of some sets of units, how many slide: `ratio` of each, rounded so that every beginning of the list has
    `ceil(ratio * its units)` sliding ones; so each quota is within one of its exact share."""
    quotas, units, sliding = [], 0, 0
    for count in counts:
        units += count
        quotas.append(quota(ratio, units) - sliding)
        sliding += quotas[-1]
    return quotas

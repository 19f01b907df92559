"""Greedy selection that measures again as it goes: what is easy to localize depends on what slides already.

At growing ratios, the score is measured with each remaining full unit localized alone, on top of the mask so far, and
the easiest batch is localized for good. The ratios are the same whatever the target, so one run serves all smaller
ones. What is left of the budget goes into exchanges; see `bosch.selectors.exchanges`.
"""

from collections.abc import Iterable, Mapping

from bosch.heads import HeadMask, Unit
from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.exchanges import Walk, exchange
from bosch.selectors.racing import Race

NUM_STEPS = 24
"""Growing ratios on the way to all sliding, evenly spaced."""

POOL = 2
"""After the first step only the units that looked easiest when last measured are measured again: this many for each
that is to be localized."""


def progressive(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Localize the easiest units first and measure the others again, then exchange some; arguments as in `Selector`.

    The seed is not used: there is no chance in it. The budget bounds the measurements of the exchanges; those before
    them always run.
    """
    layout, race = problem.layout, Race(problem.objective)
    target = layout.num_localized(ratio)
    on_stage(f"localizing {target} units", layout.num_units + POOL * target)
    first_costs = _measure(race, problem.full, layout.units()) if target else {}
    walk = _walk(race, problem.full, first_costs, target)
    mask, record = exchange(walk, problem, race, budget=budget, on_stage=on_stage)
    record |= {"first_costs": {f"{layer}.{head}": cost for (layer, head), cost in sorted(first_costs.items())}}
    return Selection(mask, {"method": "progressive", **record}, _sensitivity(first_costs), tuple(walk.path[:-1]))


def _walk(race: Race, full: HeadMask, first_costs: Mapping[Unit, float], target: int) -> Walk:
    """Localize the cheapest units of each step, measured on top of what the steps before localized."""
    walk, costs, measured = Walk(full), dict(first_costs), first_costs
    for goal in _goals(full.layout.num_units, target):
        needed = goal - walk.mask.num_localized
        if walk.path:
            measured = _measure(race, walk.mask, _cheapest(costs, POOL * needed))
            costs |= measured
        walk.localize({unit: costs.pop(unit) for unit in _cheapest(measured, needed)})
        race.objective.scorer.rebase(walk.mask)
    return walk


def _goals(num_units: int, target: int) -> list[int]:
    """How many units slide after each step."""
    steps = range(1, NUM_STEPS + 1)
    return sorted({min(target, -(-num_units * step // NUM_STEPS)) for step in steps} - {0})


def _measure(race: Race, mask: HeadMask, units: Iterable[Unit]) -> dict[Unit, float]:
    """How far the score falls if each unit alone slides as well; from the top layer down, so that one pass leaves its
    states for all below."""
    return {unit: race.cost(mask, (unit,)).cost for unit in sorted(units, reverse=True)}


def _cheapest(costs: Mapping[Unit, float], count: int) -> list[Unit]:
    """The units that cost least; of equals, the lower layer and head first."""
    return sorted(costs, key=lambda unit: (costs[unit], unit))[:count]


def _sensitivity(first_costs: Mapping[Unit, float]) -> dict[int, float]:
    """Per layer, the mean fall of the normalized score when one unit alone slides."""
    layers: dict[int, list[float]] = {}
    for (layer, _), cost in first_costs.items():
        layers.setdefault(layer, []).append(cost)
    return {layer: sum(falls) / len(falls) for layer, falls in sorted(layers.items())}

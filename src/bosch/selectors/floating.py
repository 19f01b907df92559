"""Floating selection: forward by what costs least, back where that helps; measured only as far as the choice needs.

A greedy of which each step measures every remaining unit asks for most of its numbers in vain. Here:

- *Coarse to fine.* Whole layers are measured first. One that costs next to nothing slides whole; only the others are
  taken apart into units.
- *Lazy and racing.* The cheapest is found with few measurements, and few of them whole; see `bosch.selectors.racing`.
- *Floating.* At the target, units are exchanged; see `bosch.selectors.exchanges`.
"""

from bosch.heads import HeadMask
from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.exchanges import Walk, exchange
from bosch.selectors.joint import units_of
from bosch.selectors.racing import Candidate, Race, push


def floating(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Localize the cheapest layers and units, then exchange some; arguments as in `Selector`.

    The seed is not used: there is no chance in it. The budget bounds the measurements of the exchanges; those before
    them always run.
    """
    layout, race = problem.layout, Race(problem.objective)
    target = layout.num_localized(ratio)
    on_stage(f"localizing {target} units", budget * len(layout.eligible_layers))
    layer_costs = _measure_layers(race, problem.full)
    walk = _walk(race, problem.full, layer_costs, target)
    mask, record = exchange(walk, problem, race, budget=budget, on_stage=on_stage)
    return Selection(mask, {"method": "floating", **record}, layer_costs, tuple(walk.path[:-1]))


def _measure_layers(race: Race, full: HeadMask) -> dict[int, float]:
    """Cost per unit of each layer alone; from the top down, so that one pass leaves its states for all below."""
    layers = reversed(full.layout.eligible_layers)
    return dict(sorted((layer, race.cost(full, units_of(full.layout, [layer])).cost) for layer in layers))


def _walk(race: Race, full: HeadMask, layer_costs: dict[int, float], target: int) -> Walk:
    """Localize layers and units, the cheapest first, until so many slide."""
    walk, candidates = Walk(full), list[Candidate]()
    for layer, cost in layer_costs.items():
        push(candidates, Candidate(cost, units_of(full.layout, [layer]), full).refined())
    while (room := target - walk.mask.num_localized) > 0:
        first = race.cheapest(walk.mask, candidates)
        assert first is not None, "some unit is full still"
        if len(first.units) > room:
            push(candidates, first.taken_apart())
            continue
        walk.localize(dict.fromkeys(first.units, first.cost))
        race.objective.scorer.rebase(walk.mask)
    return walk

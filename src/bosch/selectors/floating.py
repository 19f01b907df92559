"""Floating selection: forward by what costs least, back where that helps; measured only as far as the choice needs.

A greedy of which each step measures every remaining unit asks for most of its numbers in vain. Here:

- *Coarse to fine.* Whole layers are measured first. One that costs next to nothing slides whole; only the others are
  taken apart into units.
- *Lazy and racing.* The cheapest is found with few measurements, and few of them whole; see `bosch.selectors.racing`.
- *Floating* (Pudil, Novovicova and Kittler, 1994). At the target, sliding units are given back, those first that cost
  most, and replaced where another costs less than giving back gains.
"""

import dataclasses
import math
from typing import Any

from bosch.heads import HeadMask, Unit
from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.joint import units_of
from bosch.selectors.racing import Candidate, Race, push


def floating(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Localize the cheapest layers and units, then exchange some; arguments as in `Selector`.

    The seed is not used: there is no chance in it. The budget bounds the measurements of the exchanges; those before
    them always run.
    """
    layout, race = problem.layout, Race(problem.objective)
    target, limit = layout.num_localized(ratio), budget * len(layout.eligible_layers)
    on_stage(f"localizing {target} units", limit)
    walk = _walk(race, problem.full, target)
    before_exchanges = race.objective(walk.mask)
    left = int(max(limit - race.measurements, 0) * problem.share_of_exchanges)
    on_stage("exchanging units", left)
    mask, exchanges = _exchange(race, walk, race.measurements + left)
    record = {
        "method": "floating",
        "steps": walk.steps,
        "score_before_exchanges": before_exchanges,
        "exchanges": exchanges,
        "score": race.objective(mask),
        "measurements": race.measurements,
    }
    return Selection(mask, record, walk.layer_costs, tuple(walk.path[:-1]))


@dataclasses.dataclass
class _Walk:
    """The way to the target.

    Args:
        mask: where it has come to.
        candidates: a heap of all that is still full.
        path: every mask on the way.
        costs: of the sliding units, what each cost when it was localized.
        layer_costs: of each layer alone on top of the full model, per unit.
        steps: what was localized, in order, as plain data.
    """

    mask: HeadMask
    candidates: list[Candidate]
    path: list[HeadMask] = dataclasses.field(default_factory=list)
    costs: dict[Unit, float] = dataclasses.field(default_factory=dict)
    layer_costs: dict[int, float] = dataclasses.field(default_factory=dict)
    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def _walk(race: Race, full: HeadMask, target: int) -> _Walk:
    """Localize layers and units, the cheapest first, until so many slide."""
    walk = _Walk(full, [])
    walk.layer_costs = _measure_layers(race, full)
    for layer, cost in walk.layer_costs.items():
        push(walk.candidates, Candidate(cost, units_of(full.layout, [layer]), full).refined())
    while (room := target - walk.mask.num_localized) > 0:
        first = race.cheapest(walk.mask, walk.candidates)
        assert first is not None, "some unit is full still"
        if len(first.units) > room:
            push(walk.candidates, first.taken_apart())
            continue
        walk.mask = walk.mask.localize(first.units)
        race.objective.scorer.rebase(walk.mask)
        walk.path.append(walk.mask)
        walk.costs |= dict.fromkeys(first.units, first.cost)
        walk.steps.append({"units": [list(unit) for unit in first.units], "cost": first.cost * len(first.units)})
    return walk


def _measure_layers(race: Race, full: HeadMask) -> dict[int, float]:
    """Cost per unit of each layer alone; from the top down, so that one pass leaves its states for all below."""
    score, costs = race.objective(full), {}
    for layer in reversed(full.layout.eligible_layers):
        units = units_of(full.layout, [layer])
        costs[layer] = (score - race.measure(full.localize(units), -math.inf).score) / len(units)
    return dict(sorted(costs.items()))


def _exchange(race: Race, walk: _Walk, limit: int) -> tuple[HeadMask, list[dict[str, Any]]]:
    """Give sliding units back and localize others wherever that raises the score, within so many measurements."""
    mask, costs, tried = walk.mask, dict(walk.costs), set[Unit]()
    exchanges: list[dict[str, Any]] = []
    while race.measurements < limit and (untried := costs.keys() - tried):
        back = max(untried, key=lambda unit: (costs[unit], unit))
        tried.add(back)
        candidates = race.guesses(set(mask.layout.units()) - costs.keys())
        if not candidates:
            break
        score, smaller = race.objective(mask), mask.assign({back: True})
        returned = race.measure(smaller, score + candidates[0].cost)
        gain = returned.score - score
        winner = race.cheapest(smaller, candidates, below=gain) if returned.is_exact else None
        if winner is None:
            continue
        mask = smaller.localize(winner.units)
        race.objective.scorer.rebase(mask)
        (there,) = winner.units
        del costs[back]
        costs[there] = winner.cost
        tried = {there}
        exchanges.append({"full": list(back), "sliding": list(there), "score": race.objective(mask)})
    return mask, exchanges

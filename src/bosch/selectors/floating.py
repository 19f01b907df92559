"""Floating selection: forward by what costs least, back where that helps; measured only as far as the choice needs.

A greedy of which each step measures every remaining unit asks for most of its numbers in vain. Here:

- *Coarse to fine.* Whole layers are measured first. One that costs next to nothing slides whole; only the others are
  taken apart into units.
- *Lazy* (Minoux, 1978). As others slide, what a unit costs rarely falls: its last measurement is a guess of the least
  that it costs now. Only the cheapest guess is measured again, until the cheapest is no guess any more.
- *Racing.* A measurement ends with the example that proves it above the next guess.
- *Floating* (Pudil, Novovicova and Kittler, 1994). At the target, sliding units are given back, those first that cost
  most, and replaced where another costs less than giving back gains.
"""

import dataclasses
import heapq
import math
from collections.abc import Iterable
from typing import Any

from bosch.heads import HeadMask, Unit
from bosch.objective import Bound, Objective
from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.joint import units_of

TOLERANCE = 0.02
"""Fall of the normalized score up to which a layer slides whole."""


@dataclasses.dataclass(frozen=True, order=True)
class _Candidate:
    """Units that may slide next, and what is known of their cost.

    Args:
        cost: fall of the normalized score, per unit: measured on top of `mask`, or a guess of the least.
        units: of one layer.
        mask: on top of which the cost is exact; None for a guess.
    """

    cost: float
    units: tuple[Unit, ...]
    mask: HeadMask | None = dataclasses.field(default=None, compare=False)

    def taken_apart(self) -> list["_Candidate"]:
        """Its units one by one. One of them may bear the whole cost, so each is guessed to be free."""
        return [_Candidate(0.0, (unit,)) for unit in self.units]

    def refined(self) -> list["_Candidate"]:
        """Its units, where it is a layer too dear to slide whole; otherwise itself."""
        is_dear = len(self.units) > 1 and self.cost * len(self.units) > TOLERANCE
        return self.taken_apart() if is_dear else [self]


def floating(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Localize the cheapest layers and units, then exchange some; arguments as in `Selector`.

    The seed is not used: there is no chance in it. The budget bounds the measurements of the exchanges; those before
    them always run.
    """
    layout, race = problem.layout, _Race(problem.objective)
    target, limit = layout.num_localized(ratio), budget * len(layout.eligible_layers)
    on_stage(f"localizing {target} units", limit)
    walk = _walk(race, problem.full, target)
    before_exchanges = race.objective(walk.mask)
    on_stage("exchanging units", max(limit - race.measurements, 0))
    mask, exchanges = _exchange(race, walk, limit)
    record = {
        "method": "floating",
        "steps": walk.steps,
        "score_before_exchanges": before_exchanges,
        "exchanges": exchanges,
        "score": race.objective(mask),
        "measurements": race.measurements,
    }
    return Selection(mask, record, walk.layer_costs, tuple(walk.path[:-1]))


class _Race:
    """Measures candidates and counts the measurements, known or not: a resumed run counts the same.

    Attributes:
        least_costs: of units measured alone, the smallest cost met, whatever slid then.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.measurements = 0
        self.least_costs: dict[Unit, float] = {}

    def measure(self, mask: HeadMask, floor: float) -> Bound:
        """A mask's score, as far as it matters whether it reaches the floor."""
        self.measurements += 1
        return self.objective.at_least(mask, floor)

    def cheapest(self, mask: HeadMask, candidates: list[_Candidate], below: float = math.inf) -> _Candidate | None:
        """The candidate that costs least per unit on top of a mask.

        Args:
            mask: what slides already.
            candidates: a heap; the winner is taken out, and what is learnt of the others stays in it.
            below: a cost that is of no use any more.

        Returns:
            The candidate with its exact cost; None if none costs less than `below`.
        """
        score = self.objective(mask)
        while candidates and candidates[0].cost < below:
            first = heapq.heappop(candidates)
            if first.mask == mask:
                return first
            next_cost = min(below, candidates[0].cost) if candidates else below
            bound = self.measure(mask.localize(first.units), score - next_cost * len(first.units))
            cost = (score - bound.score) / len(first.units)
            if len(first.units) == 1:
                (unit,) = first.units
                self.least_costs[unit] = min(cost, self.least_costs.get(unit, cost))
            _push(candidates, _Candidate(cost, first.units, mask if bound.is_exact else None).refined())
        return None


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
    candidates: list[_Candidate]
    path: list[HeadMask] = dataclasses.field(default_factory=list)
    costs: dict[Unit, float] = dataclasses.field(default_factory=dict)
    layer_costs: dict[int, float] = dataclasses.field(default_factory=dict)
    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def _walk(race: _Race, full: HeadMask, target: int) -> _Walk:
    """Localize layers and units, the cheapest first, until so many slide."""
    walk = _Walk(full, [])
    walk.layer_costs = _measure_layers(race, full)
    for layer, cost in walk.layer_costs.items():
        _push(walk.candidates, _Candidate(cost, units_of(full.layout, [layer]), full).refined())
    while (room := target - walk.mask.num_localized) > 0:
        first = race.cheapest(walk.mask, walk.candidates)
        assert first is not None, "some unit is full still"
        if len(first.units) > room:
            _push(walk.candidates, first.taken_apart())
            continue
        walk.mask = walk.mask.localize(first.units)
        race.objective.scorer.rebase(walk.mask)
        walk.path.append(walk.mask)
        walk.costs |= dict.fromkeys(first.units, first.cost)
        walk.steps.append({"units": [list(unit) for unit in first.units], "cost": first.cost * len(first.units)})
    return walk


def _measure_layers(race: _Race, full: HeadMask) -> dict[int, float]:
    """Cost per unit of each layer alone; from the top down, so that one pass leaves its states for all below."""
    score, costs = race.objective(full), {}
    for layer in reversed(full.layout.eligible_layers):
        units = units_of(full.layout, [layer])
        costs[layer] = (score - race.measure(full.localize(units), -math.inf).score) / len(units)
    return dict(sorted(costs.items()))


def _exchange(race: _Race, walk: _Walk, limit: int) -> tuple[HeadMask, list[dict[str, Any]]]:
    """Give sliding units back and localize others wherever that raises the score, within so many measurements."""
    mask, costs, tried = walk.mask, dict(walk.costs), set[Unit]()
    exchanges: list[dict[str, Any]] = []
    while race.measurements < limit and (untried := costs.keys() - tried):
        back = max(untried, key=lambda unit: (costs[unit], unit))
        tried.add(back)
        candidates: list[_Candidate] = []
        others = set(mask.layout.units()) - costs.keys()
        _push(candidates, (_Candidate(race.least_costs.get(unit, 0.0), (unit,)) for unit in others))
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


def _push(candidates: list[_Candidate], more: Iterable[_Candidate]) -> None:
    for candidate in more:
        heapq.heappush(candidates, candidate)

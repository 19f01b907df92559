"""Floating selection: forward by what costs least, back where that helps; measured only as far as the choice needs.

A greedy of which each step measures every remaining unit asks for most of its numbers in vain. Here:

- *Coarse to fine.* Whole layers are measured first. One that costs next to nothing slides whole; only the others are
  taken apart into units.
- *Lazy and racing.* The cheapest is found with few measurements, and few of them whole; see `bosch.selectors.racing`.
- *Floating.* At the target, units are exchanged; see `bosch.selectors.exchanges`.
"""

import dataclasses
import math

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.selectors.blackbox import units_of
from bosch.selectors.exchanges import GreedyPath, exchange
from bosch.selectors.method import Method, Problem, Selection, StageListener
from bosch.selectors.progressive import greedy_budget
from bosch.selectors.racing import Candidate, Race, push


@dataclasses.dataclass(frozen=True)
class Floating(Method):
    """Localize the cheapest layers and units, then exchange some.

    Args:
        tolerance: fall of the normalized score up to which a layer slides whole.
    """

    name = "floating"
    summary = "Floating selection: forward by what costs least, back where that helps; measured as far as choices need."

    tolerance: float = 0.02

    def __post_init__(self) -> None:
        if not math.isfinite(self.tolerance):
            raise BoschError(f"tolerance must be a finite number, got {self.tolerance!r}")

    def default_budget(self, layout: HeadLayout) -> int:
        """Three evaluations a unit."""
        return greedy_budget(layout)

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Arguments as in `Method`. The seed is not used: there is no chance in it. The budget bounds the measurements
        of the exchanges; those before them always run."""
        layout, race = problem.layout, Race(problem.objective, self.tolerance)
        target = layout.num_localized(ratio)
        on_stage(f"localizing {target} KV heads", budget * len(layout.eligible_layers))
        layer_costs = _measure_layers(race, problem.full)
        way = _way(race, problem.full, layer_costs, target)
        mask, record = exchange(way, problem, race, budget=budget, on_stage=on_stage)
        return Selection(mask, {"method": self.name, **record}, layer_costs, tuple(way.path[:-1]))


def _measure_layers(race: Race, full: HeadMask) -> dict[int, float]:
    """Cost per unit of each layer alone; from the top down, so that one pass leaves its states for all below."""
    layers = reversed(full.layout.eligible_layers)
    return dict(sorted((layer, race.cost(full, units_of(full.layout, [layer])).cost) for layer in layers))


def _way(race: Race, full: HeadMask, layer_costs: dict[int, float], target: int) -> GreedyPath:
    """Localize layers and units, the cheapest first, until so many slide."""
    way, candidates = GreedyPath(full), list[Candidate]()
    for layer, cost in layer_costs.items():
        push(candidates, race.refined(Candidate(cost, units_of(full.layout, [layer]), full)))
    while (room := target - way.mask.num_localized) > 0:
        first = race.cheapest(way.mask, candidates)
        assert first is not None, "some unit is full still"
        if len(first.units) > room:
            push(candidates, first.taken_apart())
            continue
        way.localize(dict.fromkeys(first.units, first.cost))
        race.objective.scorer.rebase(way.mask)
    return way

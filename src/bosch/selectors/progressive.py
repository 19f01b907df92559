"""Greedy selection that measures again as it goes: what is easy to localize depends on what slides already.

At growing ratios, the score is measured with each remaining full unit localized alone, on top of the mask so far, and
the easiest batch is localized for good. The ratios are the same whatever the target, so one run serves all smaller
ones. What is left of the budget goes into exchanges; see `bosch.selectors.exchanges`.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping

from bosch.common.options import check_integer
from bosch.heads import HeadLayout, HeadMask, Unit
from bosch.selectors.exchanges import GreedyPath, exchange
from bosch.selectors.method import Method, Problem, Selection, StageListener
from bosch.selectors.racing import Race

BUDGET_PER_UNIT = 3
"""Evaluations of a greedy method for each unit: to measure every unit takes one, to go on to all sliding two more, so
that something is left for exchanges at every ratio."""


def greedy_budget(layout: HeadLayout) -> int:
    """Evaluations per eligible layer of a greedy method where none are asked for."""
    return math.ceil(BUDGET_PER_UNIT * layout.num_units / max(len(layout.eligible_layers), 1))


@dataclasses.dataclass(frozen=True)
class Progressive(Method):
    """Localize the easiest units first and measure the others again, then exchange some.

    Args:
        steps: growing ratios on the way to all sliding, evenly spaced.
        pool: after the first step only the units that looked easiest when last measured are measured again: this many
            for each that is to be localized.
    """

    name = "progressive"
    summary = (
        "Greedy selection that measures again as it goes: what is easy to localize depends on what slides already."
    )

    steps: int = 24
    pool: int = 2

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)
        check_integer("pool", self.pool, 1)

    def default_budget(self, layout: HeadLayout) -> int:
        """Three evaluations a unit."""
        return greedy_budget(layout)

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Arguments as in `Method`. The seed is not used: there is no chance in it. The budget bounds the measurements
        of the exchanges; those before them always run."""
        layout, race = problem.layout, Race(problem.objective)
        target = layout.num_localized(ratio)
        on_stage(f"localizing {target} KV heads", layout.num_units + self.pool * target)
        first_costs = _measure(race, problem.full, layout.units()) if target else {}
        way = self._way(race, problem.full, first_costs, target)
        mask, record = exchange(way, problem, race, budget=budget, on_stage=on_stage)
        record |= {"first_costs": {f"{layer}.{head}": cost for (layer, head), cost in sorted(first_costs.items())}}
        return Selection(mask, {"method": self.name, **record}, _sensitivity(first_costs), tuple(way.path[:-1]))

    def _way(self, race: Race, full: HeadMask, first_costs: Mapping[Unit, float], target: int) -> GreedyPath:
        """Localize the cheapest units of each step, measured on top of what the steps before localized."""
        way, costs, measured = GreedyPath(full), dict(first_costs), first_costs
        for goal in self.goals(full.layout.num_units, target):
            needed = goal - way.mask.num_localized
            if way.path:
                measured = _measure(race, way.mask, _cheapest(costs, self.pool * needed))
                costs |= measured
            way.localize({unit: costs.pop(unit) for unit in _cheapest(measured, needed)})
            race.objective.scorer.rebase(way.mask)
        return way

    def goals(self, num_units: int, target: int) -> list[int]:
        """How many units slide after each step."""
        steps = range(1, self.steps + 1)
        return sorted({min(target, -(-num_units * step // self.steps)) for step in steps} - {0})


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

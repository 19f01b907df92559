"""How a greedy search ends: what slides is exchanged for what does not, wherever that helps.

*Floating* selection (Pudil, Novovicova and Kittler, 1994): sliding units are given back, those first that cost most,
and replaced where another costs less than giving back gains.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bosch.heads import HeadMask, Unit
from bosch.selectors.method import Problem, StageListener
from bosch.selectors.racing import Race


@dataclasses.dataclass
class GreedyPath:
    """A way from the full model to a mask.

    Args:
        mask: where it has come to.
        path: every mask on the way, this one included.
        steps: the units that slid at each step, with what each cost.
    """

    mask: HeadMask
    path: list[HeadMask] = dataclasses.field(default_factory=list)
    steps: list[dict[Unit, float]] = dataclasses.field(default_factory=list)

    def localize(self, costs: Mapping[Unit, float]) -> None:
        """Go on by some units, each with its cost."""
        self.mask = self.mask.localize(costs)
        self.path.append(self.mask)
        self.steps.append(dict(costs))


def exchange(
    way: GreedyPath, problem: Problem, race: Race, *, budget: int, on_stage: StageListener
) -> tuple[HeadMask, dict[str, Any]]:
    """Exchange units of a mask for others, one for one, as long as that raises the score and the budget lasts.

    Each sliding unit is tried once after the last exchange.

    Args:
        way: to the mask.
        problem: whose share of exchanges of what is left of the budget may be spent.
        race: that the way was measured with.
        budget: measurements per eligible layer, those of the way included.
        on_stage: hears how many are left.

    Returns:
        The mask, and the way and the exchanges as plain data.
    """
    left = max(budget * len(problem.layout.eligible_layers) - race.measurements, 0)
    limit = race.measurements + int(left * problem.share_of_exchanges)
    on_stage("exchanging KV heads", limit - race.measurements)
    mask, tried = way.mask, set[Unit]()
    costs = {unit: cost for step in way.steps for unit, cost in step.items()}
    exchanges: list[dict[str, Any]] = []
    while race.measurements < limit and (untried := costs.keys() - tried):
        back = max(untried, key=lambda unit: (costs[unit], unit))
        tried.add(back)
        candidates = race.guesses(set(problem.layout.units()) - costs.keys())
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
    return mask, {
        "steps": [{"units": [list(unit) for unit in step], "costs": list(step.values())} for step in way.steps],
        "score_before_exchanges": race.objective(way.mask),
        "exchanges": exchanges,
        "score": race.objective(mask),
        "measurements": race.measurements,
    }

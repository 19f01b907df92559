"""Greedy selection that measures again as it goes: what is easy to localize depends on what slides already.

At growing ratios, the score is measured with each remaining full unit localized alone, on top of the mask so far, and
the easiest batch is localized for good. Every mask on the way is kept, so one run serves all smaller ratios. What is
left of the budget goes into swaps: a sliding unit is given back where that helps most, for a full one that costs least.
"""

import itertools
from collections.abc import Iterable
from typing import Any

from bosch.heads import HeadMask, Unit
from bosch.objective import Objective
from bosch.selectors.contract import Problem, Selection, StageListener

NUM_STEPS = 6
"""Growing ratios on the way to the target, evenly spaced."""

POOL = 2
"""After the first step only the units that looked easiest when last measured are measured again: this many for each
that is to be localized."""


def progressive(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Localize the easiest units first and measure the others again; arguments as in `Selector`.

    The seed is not used: there is no chance in it. The budget bounds the evaluations of the swaps; the steps before
    them always run.
    """
    objective, layout = problem.objective, problem.layout
    target = layout.num_localized(ratio)
    spent = _Counter(objective)
    mask = problem.full
    costs: dict[Unit, float] = {}
    path: list[HeadMask] = []
    steps: list[dict[str, Any]] = []
    first_costs: dict[Unit, float] = {}
    for goal in sorted({-(-target * step // NUM_STEPS) for step in range(1, NUM_STEPS + 1)} - {0}):
        needed = goal - mask.num_localized
        pool = _cheapest(costs, POOL * needed) if costs else list(layout.units())
        on_stage(f"localizing {goal} of {target} units", len(pool))
        costs |= spent.costs(mask, {unit: mask.localize([unit]) for unit in pool})
        first_costs = first_costs or dict(costs)
        chosen = _cheapest({unit: costs[unit] for unit in pool}, needed)
        mask = mask.localize(chosen)
        for unit in chosen:
            del costs[unit]
        objective.scorer.rebase(mask)
        path.append(mask)
        steps.append({"localized": sorted(chosen), "measured": len(pool)})
    before_swaps = objective(mask)
    left = max(budget * len(layout.eligible_layers) - spent.evaluations, 0)
    left = int(left * problem.share_of_exchanges)
    on_stage("swapping units", left)
    mask, swaps = _swap(objective, mask, costs, spent, left)
    record = {
        "method": "progressive",
        "steps": steps,
        "score_before_swaps": before_swaps,
        "swaps": swaps,
        "score": objective(mask),
        "evaluations": spent.evaluations,
        "first_costs": {f"{layer}.{head}": cost for (layer, head), cost in sorted(first_costs.items())},
    }
    return Selection(mask, record, _sensitivity(first_costs), tuple(path[:-1]))


class _Counter:
    """Measures masks and counts those that this run asked for, known or not: a resumed run counts the same."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.evaluations = 0

    def costs(self, mask: HeadMask, candidates: dict[Unit, HeadMask]) -> dict[Unit, float]:
        """How far the score falls from the mask's to each candidate's; from the top layer down, so that one pass leaves
        its states for all below."""
        self.evaluations += 1 + len(candidates)
        score = self.objective(mask)
        return {unit: score - self.objective(candidates[unit]) for unit in sorted(candidates, reverse=True)}


def _swap(
    objective: Objective, mask: HeadMask, costs: dict[Unit, float], spent: _Counter, left: int
) -> tuple[HeadMask, list[dict[str, Any]]]:
    """Swap one sliding for one full unit wherever that raises the score, the most promising pairs first.

    Args:
        objective: the score; mask: where to start.
        costs: fall of the score with a full unit localized, as last measured.
        spent: counts evaluations.
        left: evaluations that may still be spent.
    """
    swaps: list[dict[str, Any]] = []
    sliding = sorted(mask.localized)
    if left <= len(sliding) or not costs:
        return mask, swaps
    limit = spent.evaluations + left
    best = objective(mask)
    reliefs = spent.costs(mask, {unit: mask.assign({unit: True}) for unit in sliding})
    for back, there in _promising_pairs(_cheapest(reliefs, len(reliefs)), _cheapest(costs, len(costs))):
        if spent.evaluations >= limit:
            break
        if mask[back] or not mask[there]:
            continue
        candidate = mask.assign({back: True, there: False})
        spent.evaluations += 1
        score = objective(candidate)
        if score > best:
            mask, best = candidate, score
            objective.scorer.rebase(mask)
            swaps.append({"full": list(back), "sliding": list(there), "score": score})
    return mask, swaps


def _promising_pairs(first: list[Unit], second: list[Unit]) -> Iterable[tuple[Unit, Unit]]:
    """All pairs of two rankings, by the sum of their ranks."""
    pairs = itertools.product(enumerate(first), enumerate(second))
    return ((a, b) for (i, a), (j, b) in sorted(pairs, key=lambda pair: (pair[0][0] + pair[1][0], pair[0][0])))


def _cheapest(costs: dict[Unit, float], count: int) -> list[Unit]:
    """The units that cost least; of equals, the lower layer and head first."""
    return sorted(costs, key=lambda unit: (costs[unit], unit))[:count]


def _sensitivity(first_costs: dict[Unit, float]) -> dict[int, float]:
    """Per layer, the mean fall of the normalized score when one unit alone slides."""
    layers: dict[int, list[float]] = {}
    for (layer, _), cost in first_costs.items():
        layers.setdefault(layer, []).append(cost)
    return {layer: sum(falls) / len(falls) for layer, falls in sorted(layers.items())}

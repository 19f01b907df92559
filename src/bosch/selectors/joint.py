"""One black-box search over the units of a few layers, each layer with its quota; the rest of the mask stays."""

import math
from collections.abc import Mapping
from typing import Any

from bosch.heads import HeadMask
from bosch.objective import Objective
from bosch.optimizers import Bits, Outcome, QuotaSpace, minimize


def search_layers(
    objective: Objective, mask: HeadMask, quotas: Mapping[int, int], *, budget: int, seed: int, start: HeadMask
) -> tuple[HeadMask, Outcome]:
    """Find the best sliding units of some layers.

    Args:
        objective: the score to be maximised.
        mask: what the other layers do.
        quotas: for each layer that is searched, exactly how many of its units slide.
        budget: evaluations; where there are no more candidates than that, all are tried.
        seed: of the optimizer.
        start: its rows for these layers, brought to the quotas, are tried first.

    Returns:
        The mask with the best rows in place, and what the optimizer did.
    """
    units = [(layer, head) for layer in quotas for head in range(mask.layout.units_per_layer[layer])]
    space = QuotaSpace(tuple((mask.layout.units_per_layer[layer], ones) for layer, ones in quotas.items()))

    def place(bits: Bits) -> HeadMask:
        return mask.assign({unit: not slides for unit, slides in zip(units, bits, strict=True)})

    lowest = math.inf

    def loss(bits: Bits) -> float:
        nonlocal lowest
        candidate = place(bits)
        value = -objective(candidate)
        if value < lowest:
            lowest = value
            objective.scorer.rebase(candidate)
        return value

    first = space.project(tuple(not start[unit] for unit in units))
    outcome = minimize(space, loss, budget=budget, seed=seed, start=first)
    best = place(outcome.best)
    objective.scorer.rebase(best)
    return best, outcome


def describe(outcome: Outcome) -> dict[str, Any]:
    """A search as plain data for the record."""
    return {
        "optimizer": outcome.optimizer,
        "evaluations": outcome.num_evaluations,
        "score": -outcome.loss,
        "own_seconds": round(outcome.own_seconds, 3),
        "stop_reason": outcome.stop_reason,
    }

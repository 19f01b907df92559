"""One black-box search over some units, each set of them with its quota; the rest of the mask stays."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bosch.heads import HeadLayout, HeadMask, Unit
from bosch.optimizers import COMPARING, Bits, Outcome, QuotaSpace, choose_optimizer, minimize
from bosch.scoring.objective import Objective


def search_units(
    objective: Objective,
    mask: HeadMask,
    quotas: Mapping[tuple[Unit, ...], int],
    *,
    budget: int,
    seed: int,
    start: HeadMask,
    optimizer: str | None = None,
) -> tuple[HeadMask, Outcome]:
    """Find the best sliding units among some.

    Args:
        objective: the score to be maximised.
        mask: what the other units do.
        quotas: sets of units that are searched, and exactly how many of each set slide.
        budget: evaluations; where there are no more candidates than that, all are tried.
        seed: of the optimizer.
        start: its choice of these units, brought to the quotas, is tried first.
        optimizer: a name in `OPTIMIZERS`; None: as `choose_optimizer` has it.

    Returns:
        The mask with the best choice in place, and what the optimizer did.
    """
    units = [unit for members in quotas for unit in members]
    space = QuotaSpace(tuple((len(members), ones) for members, ones in quotas.items()))

    def place(bits: Bits) -> HeadMask:
        return mask.assign({unit: not slides for unit, slides in zip(units, bits, strict=True)})

    first = space.project(tuple(not start[unit] for unit in units))
    return search_space(objective, space, place, budget=budget, seed=seed, start=first, optimizer=optimizer)


def search_space(
    objective: Objective,
    space: QuotaSpace,
    place: Callable[[Bits], HeadMask],
    *,
    budget: int,
    seed: int,
    start: Bits,
    optimizer: str | None = None,
) -> tuple[HeadMask, Outcome]:
    """Find the best point of a space; arguments as above, with `place` to make a mask of a point.

    A mask is given up as soon as it cannot be the best, where the optimizer needs to know no more than that.
    """
    optimizer = optimizer or choose_optimizer(space, budget)
    lowest = math.inf

    def loss(bits: Bits) -> float:
        nonlocal lowest
        candidate = place(bits)
        value = -objective.at_least(candidate, -lowest if optimizer in COMPARING else -math.inf).score
        if value < lowest:
            lowest = value
            objective.scorer.rebase(candidate)
        return value

    outcome = minimize(space, loss, budget=budget, seed=seed, start=start, optimizer=optimizer)
    best = place(outcome.best)
    objective.scorer.rebase(best)
    return best, outcome


def units_of(layout: HeadLayout, layers: Iterable[int]) -> tuple[Unit, ...]:
    """All units of some layers."""
    return tuple((layer, head) for layer in layers for head in range(layout.units_per_layer[layer]))


def describe(outcome: Outcome) -> dict[str, Any]:
    """A search as plain data for the record."""
    return {
        "optimizer": outcome.optimizer,
        "evaluations": outcome.num_evaluations,
        "score": -outcome.loss,
        "own_seconds": round(outcome.own_seconds, 3),
        "stop_reason": outcome.stop_reason,
    }

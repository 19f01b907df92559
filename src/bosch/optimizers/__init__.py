"""Black-box minimization over bits with quotas. It knows bits, a budget, a seed and a function, and nothing else."""

import random
from collections.abc import Callable

from bosch.common.lookup import lookup
from bosch.errors import BoschError
from bosch.optimizers.brute_force import brute_force
from bosch.optimizers.loop import Optimizer, Outcome, run
from bosch.optimizers.nomad import nomad
from bosch.optimizers.one_plus_one import one_plus_one
from bosch.optimizers.space import Bits, QuotaSpace
from bosch.optimizers.swap import swap

__all__ = ["COMPARING", "OPTIMIZERS", "Bits", "Optimizer", "Outcome", "QuotaSpace", "choose_optimizer", "minimize"]

OPTIMIZERS: dict[str, Optimizer] = {
    "brute-force": brute_force,
    "nomad": nomad,
    "one-plus-one": one_plus_one,
    "swap": swap,
}

COMPARING = frozenset({"brute-force", "nomad", "swap"})
"""Those that ask of a point only whether it is the best so far: whatever number above the best they are told of a worse
one, they propose the same."""


MAX_NOMAD_VARIABLES = 50


def choose_optimizer(space: QuotaSpace, budget: int) -> str:
    """Name of the optimizer for a space and a budget (paper B.2).

    Brute force where it fits the budget, NOMAD up to 50 variables that are not pinned, OnePlusOne above.
    """
    if space.num_feasible <= budget:
        return "brute-force"
    return "nomad" if len(space.free) <= MAX_NOMAD_VARIABLES else "one-plus-one"


def minimize(
    space: QuotaSpace,
    loss: Callable[[Bits], float],
    *,
    budget: int,
    seed: int,
    start: Bits | None = None,
    optimizer: str | None = None,
) -> Outcome:
    """Find the point of a space with the lowest loss.

    Args:
        space: where to search.
        loss: called with feasible bits only, never twice with the same, at most `budget` times. A NaN or an infinity
            counts as a failed evaluation. An exception ends the search and reaches the caller.
        budget: evaluations.
        seed: the same arguments give the same calls in the same order, in any process.
        start: evaluated first; by default a random feasible point.
        optimizer: a name in `OPTIMIZERS`; by default `choose_optimizer` picks.

    Raises:
        BoschError: the budget is below 1, the start is not a point of the space, there is no such optimizer, or no
            evaluation gave a finite loss.
    """
    if type(budget) is not int or budget < 1:
        raise BoschError(f"the budget must be an integer of at least 1 evaluation, got {budget!r}")
    name = optimizer or choose_optimizer(space, budget)
    propose = lookup("optimizer", name, OPTIMIZERS)
    begin = space.sample(random.Random(f"start {seed}")) if start is None else space.check_start(start)
    return run(name, propose, space, loss, budget=budget, seed=seed, start=begin)

"""Which optimizer searches which space."""

from bosch.optimizers.space import QuotaSpace

MAX_NOMAD_VARIABLES = 50


def choose_optimizer(space: QuotaSpace, budget: int) -> str:
    """Name of the optimizer for a space and a budget (paper B.2).

    Brute force where it fits the budget, NOMAD up to 50 variables that are not pinned, OnePlusOne above.
    """
    if space.num_feasible <= budget:
        return "brute-force"
    if len(space.free) <= MAX_NOMAD_VARIABLES:
        return "nomad"
    return "one-plus-one"

"""OnePlusOne, as implemented by nevergrad: mutate the best point, keep the better of the two.

Droste, Jansen, Wegener (2002), On the analysis of the (1+1) evolutionary algorithm.
"""

import math
from collections.abc import Generator

import numpy

from bosch.optimizers.space import Bits, QuotaSpace

FAILED = 1e20
"""Told to nevergrad for a failed evaluation: worse than any loss, and finite, as it warns of infinities."""


def one_plus_one(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    """Propose the start, then mutations of the best point so far."""
    # Here, because its import takes a second or two that only this optimizer should cost.
    import nevergrad

    parameter = nevergrad.p.TransitionChoice([False, True], repetitions=space.dimension)
    parameter.value = start
    parameter.random_state = numpy.random.RandomState(seed)
    optimizer = nevergrad.optimizers.registry["DiscreteOnePlusOne"](parameter, budget=budget)
    candidate = parameter
    while True:
        loss = yield tuple(map(bool, candidate.value))
        optimizer.tell(candidate, loss if math.isfinite(loss) else FAILED)
        candidate = optimizer.ask()

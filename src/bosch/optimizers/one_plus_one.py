"""OnePlusOne, as implemented by nevergrad: mutate the best point, keep the better of the two.

Droste, Jansen, Wegener (2002), On the analysis of the (1+1) evolutionary algorithm.
"""

import random
from collections.abc import Generator

import numpy

from bosch.optimizers.space import Bits, QuotaSpace


def one_plus_one(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    """Propose the start, then mutations of the best point so far, each repaired at random to meet the quotas.

    Nevergrad is told the repaired point, as if it had proposed that. Left with penalties instead, it finds little:
    flips of one bit, the mutations it makes most, are never feasible.
    """
    # Here, because its import takes seconds that only this optimizer should cost.
    import nevergrad

    # A bit is the sign of a real number: nevergrad's own choice of False or True takes ten times as long.
    signs = nevergrad.p.Array(init=numpy.array(start) - 0.5)
    signs.random_state = numpy.random.RandomState(seed)
    optimizer = nevergrad.optimizers.registry["DiscreteOnePlusOne"](signs, budget=budget)
    rng = random.Random(f"one plus one {seed}")
    bits = start
    while True:
        loss = yield bits
        optimizer.tell(signs.spawn_child(numpy.array(bits) - 0.5), loss)
        bits = space.repair([bool(value > 0) for value in optimizer.ask().value], rng)

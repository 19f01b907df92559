"""The (1+1) evolutionary algorithm kept inside the quotas: exchange a few bits of the best point, keep the better.

Droste, Jansen, Wegener (2002), On the analysis of the (1+1) evolutionary algorithm, with a repair after the mutation.
Where a general optimizer flips a bit and finds itself off the quota, this one has swapped it with another.
"""

import random
from collections.abc import Generator

from bosch.optimizers.space import Bits, QuotaSpace


def swap(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    """Propose the start, then the best point so far with each free bit flipped at rate 1/n, repaired at random."""
    rng = random.Random(f"swap {seed}")
    best, lowest = start, (yield start)
    free = space.free
    while free:
        flips = [i for i in free if rng.random() * len(free) < 1] or [rng.choice(free)]
        mutant = space.repair([bit != (i in flips) for i, bit in enumerate(best)], rng)
        loss = yield mutant
        if loss <= lowest:
            best, lowest = mutant, loss

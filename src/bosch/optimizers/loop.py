"""The one loop around every optimizer: it asks for points, evaluates each new one once, and keeps the best.

An optimizer is a generator of proposals: it yields feasible bits and is sent their loss. It never sees the function;
budget, memo, the end of circling and the choice of what is returned are here, so all optimizers keep the same promises.
The paper's quadratic penalty on the ratio (Eq. 3) has no place: it is zero wherever the quotas are met, and a model
pass spent on a mask that may not be returned is wasted.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Generator
from typing import Protocol

from bosch.errors import BoschError
from bosch.optimizers.space import Bits, QuotaSpace

MAX_REPEATS = 200
"""Consecutive proposals that teach nothing new before a search counts as circling and is ended."""

FAILED = 1e20
"""What an optimizer is told of a failed evaluation. Finite: NOMAD ends when its start fails, nevergrad warns."""


class Optimizer(Protocol):
    """Proposes feasible points, one at a time, and is sent the loss of each.

    The start comes first. A point may come again, and is answered from memory. The generator does not return before
    the whole space was proposed; it may be closed at any time, and then leaves nothing behind.
    """

    def __call__(self, space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
        """Begin a run; `budget` is how many evaluations there will be at most."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a search found.

    Args:
        best: the best of all evaluated points, feasible; of equals, the one seen first.
        loss: its loss, as the function returned it.
        num_evaluations: calls of the function, no two with the same bits.
        own_seconds: wall-clock time of the search without the time spent in the function.
        optimizer: the optimizer's name.
        stop_reason: "budget", "all seen" (the space is exhausted) or "circling" (200 proposals in a row were known).
    """

    best: Bits
    loss: float
    num_evaluations: int
    own_seconds: float
    optimizer: str
    stop_reason: str


class Evaluations:
    """The function behind its memo: knows what was evaluated, what was best, and what it cost."""

    def __init__(self, space: QuotaSpace, loss: Callable[[Bits], float]) -> None:
        self.space = space
        self.loss = loss
        self.known: dict[Bits, float] = {}
        self.seconds = 0.0

    def evaluate(self, bits: Bits) -> float:
        """Loss of a feasible point, +inf where it is not finite; the function is called for a new point only."""
        assert self.space.is_feasible(bits)
        if bits not in self.known:
            begin = time.perf_counter()
            loss = float(self.loss(bits))
            self.seconds += time.perf_counter() - begin
            self.known[bits] = loss if math.isfinite(loss) else math.inf
        return self.known[bits]

    def best(self) -> tuple[Bits, float]:
        """The best point and its loss; of equals, the one seen first.

        Raises:
            BoschError: no evaluation gave a finite loss.
        """
        bits = min(self.known, key=lambda bits: self.known[bits])
        if self.known[bits] == math.inf:
            raise BoschError(f"none of {len(self.known)} evaluations gave a finite loss; the objective is not defined")
        return bits, self.known[bits]


def run(
    name: str,
    optimizer: Optimizer,
    space: QuotaSpace,
    loss: Callable[[Bits], float],
    *,
    budget: int,
    seed: int,
    start: Bits,
) -> Outcome:
    """Minimize a loss with one optimizer; see `bosch.optimizers.minimize`."""
    begin = time.perf_counter()
    evaluations = Evaluations(space, loss)
    proposals = optimizer(space, budget=budget, seed=seed, start=start)
    try:
        stop_reason = _drive(proposals, evaluations, budget)
    finally:
        proposals.close()
    best, best_loss = evaluations.best()
    own_seconds = time.perf_counter() - begin - evaluations.seconds
    return Outcome(best, best_loss, len(evaluations.known), own_seconds, name, stop_reason)


def _drive(proposals: Generator[Bits, float, None], evaluations: Evaluations, budget: int) -> str:
    """Answer proposals until there is a reason to stop, which is returned."""
    known = evaluations.known
    repeats = 0
    proposal = next(proposals)
    while repeats < MAX_REPEATS:
        num_known = len(known)
        loss = evaluations.evaluate(proposal)
        if len(known) == evaluations.space.num_feasible:
            return "all seen"
        if len(known) == budget:
            return "budget"
        repeats = repeats + 1 if len(known) == num_known else 0
        proposal = proposals.send(min(loss, FAILED))
    return "circling"

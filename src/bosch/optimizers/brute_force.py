"""Brute force: every feasible point, once."""

from collections.abc import Generator

from bosch.optimizers.space import Bits, QuotaSpace


def brute_force(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    """Propose the start, then all feasible points in the space's own order."""
    yield start
    yield from space.enumerate()

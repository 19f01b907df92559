"""The points that a search may return: bits in consecutive blocks, each with a fixed number of True."""

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Sequence

from bosch.errors import BoschError

Bits = tuple[bool, ...]
"""One boolean per unit that is searched over; True = localize (slide)."""


@dataclasses.dataclass(frozen=True)
class QuotaSpace:
    """Bits in consecutive blocks, one block per layer say, each with exactly its quota of True.

    Args:
        quotas: for each block (size in bits, bits that must be True). A block whose quota is 0 or its size is pinned:
            it has one value only.

    Raises:
        BoschError: there is no bit at all, or a quota lies outside 0..size.
    """

    quotas: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for size, ones in self.quotas:
            if type(size) is not int or type(ones) is not int or not 0 <= ones <= size:
                raise BoschError(f"a block of {size!r} bits cannot have {ones!r} of them True; expected 0 to its size")
        if not self.dimension:
            raise BoschError("a search needs at least one bit, got none")

    @property
    def dimension(self) -> int:
        """Number of bits, pinned ones included."""
        return sum(size for size, _ in self.quotas)

    @property
    def num_feasible(self) -> int:
        """Number of points that meet every quota, exactly."""
        return math.prod(math.comb(size, ones) for size, ones in self.quotas)

    @property
    def free(self) -> tuple[int, ...]:
        """Indexes of the bits that are not pinned."""
        blocks = zip(self._starts(), self.quotas, strict=True)
        return tuple(i for begin, (size, ones) in blocks if 0 < ones < size for i in range(begin, begin + size))

    def enumerate(self) -> Iterator[Bits]:
        """All feasible points, always in the same order."""
        return _enumerate(self.quotas)

    def sample(self, rng: random.Random) -> Bits:
        """A feasible point, each equally likely."""
        return self.repair((False,) * self.dimension, rng)

    def is_feasible(self, bits: Sequence[bool]) -> bool:
        """Whether the bits have the right number and meet every quota."""
        return len(bits) == self.dimension and not any(self._surpluses(bits))

    def repair(self, bits: Sequence[bool], rng: random.Random) -> Bits:
        """A nearest feasible point, in bits changed; each of the nearest is equally likely."""
        repaired = list(bits)
        for begin, (size, _), surplus in zip(self._starts(), self.quotas, self._surpluses(bits), strict=True):
            candidates = [i for i in range(begin, begin + size) if bits[i] == (surplus > 0)]
            for i in rng.sample(candidates, abs(surplus)):
                repaired[i] = surplus < 0
        return tuple(repaired)

    def project(self, bits: Sequence[bool]) -> Bits:
        """The nearest feasible point, in bits changed.

        There are many nearest points as a rule. Which one is chosen depends on a hash of the bits: the same input has
        the same projection in every process, and inputs that differ spread over the feasible points.
        """
        return self.repair(bits, random.Random("".join("01"[bit] for bit in bits)))

    def check_start(self, start: Sequence[bool]) -> Bits:
        """The start as bits.

        Raises:
            BoschError: it has the wrong length, an entry that is no boolean, or does not meet the quotas.
        """
        if len(start) != self.dimension:
            raise BoschError(f"the start has {len(start)} bits, but the space has {self.dimension}")
        for index, bit in enumerate(start):
            if type(bit) is not bool:
                raise BoschError(f"bit {index} of the start is {bit!r}; expected True or False")
        if not self.is_feasible(start):
            found = [sum(block) for block in self._blocks(start)]
            raise BoschError(f"the start has {found} bits True per block; expected {[ones for _, ones in self.quotas]}")
        return tuple(start)

    def _starts(self) -> Iterator[int]:
        sizes = [size for size, _ in self.quotas]
        return itertools.accumulate(sizes[:-1], initial=0)

    def _blocks(self, bits: Sequence[bool]) -> Iterator[Sequence[bool]]:
        return (bits[begin : begin + size] for begin, (size, _) in zip(self._starts(), self.quotas, strict=True))

    def _surpluses(self, bits: Sequence[bool]) -> list[int]:
        return [sum(block) - ones for block, (_, ones) in zip(self._blocks(bits), self.quotas, strict=True)]


def _enumerate(quotas: Sequence[tuple[int, int]]) -> Iterator[Bits]:
    if not quotas:
        yield ()
        return
    size, ones = quotas[0]
    for chosen in itertools.combinations(range(size), ones):
        block = tuple(i in chosen for i in range(size))
        for rest in _enumerate(quotas[1:]):
            yield block + rest

"""How many bytes of keys and values a mask leaves, and how much must slide to fit a budget."""

import dataclasses
import re

from bosch.errors import BoschError
from bosch.heads import HeadMask

UNITS_OF_MEMORY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclasses.dataclass(frozen=True)
class CacheSize:
    """Sizes of a model's cache, for one sequence.

    Args:
        unit_bytes: for each layer, bytes of one token's key and value in one of its units; 0 where it is not eligible.
        others: keys and values of the layers that are not eligible: bytes of a token, and the window they have by
            themselves (None for all tokens).
    """

    unit_bytes: tuple[int, ...]
    others: tuple[tuple[int, int | None], ...] = ()

    def nbytes(self, mask: HeadMask, num_tokens: int) -> int:
        """Bytes after so many tokens: full units hold them all, sliding ones the window and the sinks."""
        own = 0
        for layer, (size, row) in enumerate(zip(self.unit_bytes, mask.full, strict=True)):
            held = min(num_tokens, mask.window_of(layer) + mask.sinks)
            own += size * (num_tokens * sum(row) + held * (len(row) - sum(row)))
        return own + sum(size * min(num_tokens, window or num_tokens) for size, window in self.others)

    def num_localized_within(self, budget: "CacheBudget", full: HeadMask) -> int:
        """How many units must slide for the cache to fit, whichever they are.

        Args:
            budget: bytes at a number of tokens.
            full: the all-full mask, which gives layout, window and sinks.

        Raises:
            BoschError: it does not fit with every unit sliding.
        """
        least_saving_first = sorted(full.layout.units(), key=lambda unit: self.unit_bytes[unit[0]])
        for count in range(len(least_saving_first) + 1):
            if self.nbytes(full.localize(least_saving_first[:count]), budget.num_tokens) <= budget.num_bytes:
                return count
        least = self.nbytes(full.localize(least_saving_first), budget.num_tokens)
        raise BoschError(
            f"a cache of {budget} is too small: with every unit sliding it takes {least:,} bytes; "
            "expected a larger budget, fewer tokens or a smaller window"
        )


@dataclasses.dataclass(frozen=True)
class CacheBudget:
    """Bytes that the keys and values of one sequence may take, and at how many tokens."""

    num_bytes: int
    num_tokens: int

    @classmethod
    def parse(cls, text: str) -> "CacheBudget":
        """Read `2GiB@32k`: a number and B, KiB, MiB or GiB, and tokens, where k stands for 1024.

        Raises:
            BoschError: it is nothing of this form.
        """
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(B|KiB|MiB|GiB)@(\d+)(k?)", text)
        if not found or not float(found[1]) or not int(found[3]):
            raise BoschError(f"a cache budget must be bytes at some tokens, like 2GiB@32k or 500MiB@4096; got {text!r}")
        return cls(int(float(found[1]) * UNITS_OF_MEMORY[found[2]]), int(found[3]) * (1024 if found[4] else 1))

    def __str__(self) -> str:
        return f"{self.num_bytes:,} bytes at {self.num_tokens:,} tokens"

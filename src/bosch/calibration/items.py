"""Keys and values: what a needle says, drawn so that calibration and held-out data never share one."""

import functools
import random
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Literal

from bosch.common.lookup import lookup

Split = Literal["calibration", "heldout"]

SPLITS: Mapping[str, int] = {"calibration": 0, "heldout": 1}
"""The two splits, and the parity of the checksum of the items that are theirs."""


def draw_items(kind: str, split: Split, rng: random.Random) -> Iterator[str]:
    """Endlessly many different items of a kind, all of them the split's own.

    Every possible item belongs to one split alone, by the parity of its CRC-32; so two splits cannot share one,
    whatever their seeds.

    Args:
        kind: "words" (adjective-noun), "numbers" (seven digits) or "uuids" (version 4), as in RULER.
        split: whose items.
        rng: the source of randomness; advanced by the draws.

    Raises:
        BoschError: there is no such kind or split.
    """
    draw, parity = lookup("item kind", kind, KINDS), lookup("split", split, SPLITS)
    seen: set[str] = set()
    while True:
        item = draw(rng)
        if zlib.crc32(item.encode()) % 2 == parity and item not in seen:
            seen.add(item)
            yield item


@functools.cache
def words(part: Literal["adjectives", "nouns"]) -> tuple[str, ...]:
    """The words that word keys are made of, in alphabetical order."""
    return tuple(files(__package__).joinpath(f"data/{part}.txt").read_text(encoding="utf-8").split())


def _word_pair(rng: random.Random) -> str:
    return f"{rng.choice(words('adjectives'))}-{rng.choice(words('nouns'))}"


def _number(rng: random.Random) -> str:
    return str(rng.randrange(10**6, 10**7))


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


KINDS: Mapping[str, Callable[[random.Random], str]] = {"words": _word_pair, "numbers": _number, "uuids": _uuid}

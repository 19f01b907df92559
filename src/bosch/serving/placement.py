"""Which pages the KV heads' tokens lie in, so that vLLM's groups of pages waste least.

vLLM puts heads with equal specs in one bucket, then cuts every bucket into groups of one size: the largest bucket's
if that is less than 1.5 times the smallest's, else the smallest's (`_get_kv_cache_groups_uniform_page_size`). A block
holds one page for each head of a group, so 150 full heads and 74 sliding ones would become full groups of 74, 74 and
2 heads that all pay for 74. Buckets of nearly equal size, chosen here, come out as they went in.

Where no such choice exists a head may lie in pages that are held longer than it needs, as one of a wider window or of a
full head are; it attends over its own window all the same.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CUT = 1.5  # from this ratio of largest to smallest bucket on, vLLM cuts the larger ones
GROUP_COST = 0.01  # share of the memory a group must save: block tables and metadata are made for each in every step
MAX_GROUPS = 12

Window = int | None
"""Tokens a head sees; None = all of them."""


class Pages(NamedTuple):
    """The pages that one head's tokens lie in: those held for a window, and the bucket among them."""

    window: Window
    bucket: int


@dataclasses.dataclass(frozen=True)
class Placement:
    """Pages for all heads.

    Args:
        pages: of each head.
        reserved: how many pages, of one head and one block of tokens, a request of the full length reserves.
    """

    pages: tuple[Pages, ...]
    reserved: int


def place(windows: Sequence[Window], held: Mapping[Window, int]) -> Placement:
    """Choose the pages of every head.

    Args:
        windows: of each head.
        held: for each of these windows, the blocks that a request of the full length holds at most.

    Returns:
        The placement that reserves least, with 1 % added for each group.
    """
    order = sorted(held, key=lambda window: -math.inf if window is None else -window)
    rows = [[head for head, own in enumerate(windows) if own == window] for window in order]
    best: tuple[float, int, list[list[list[int]]]] | None = None
    for size in range(len(windows), 0, -1):
        for moves in (False, True):
            buckets = _cut(_promote(rows, size) if moves else rows, size)
            lengths = [len(bucket) for kind in buckets for bucket in kind]
            if len(lengths) > MAX_GROUPS or max(lengths) >= CUT * min(lengths):
                continue
            blocks = sum(held[window] * len(kind) for window, kind in zip(order, buckets, strict=True))
            reserved = max(lengths) * blocks
            cost = reserved * (1 + GROUP_COST * len(lengths))
            if best is None or cost < best[0]:
                best = cost, reserved, buckets
    assert best is not None  # one group of everything is always possible
    pages: dict[int, Pages] = {}
    for window, kind in zip(order, best[2], strict=True):
        pages.update({head: Pages(window, number) for number, bucket in enumerate(kind) for head in bucket})
    return Placement(tuple(pages[head] for head in range(len(windows))), best[1])


def _promote(rows: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Heads moved into longer-held pages until every kind but the last fills its buckets of that size."""
    left = [list(row) for row in rows]
    for kind, row in enumerate(left):
        for later in left[kind + 1 :]:
            room = -len(row) % size
            row += later[:room]
            del later[:room]
    return left


def _cut(rows: Sequence[Sequence[int]], size: int) -> list[list[list[int]]]:
    """Each kind in as few buckets of at most that size as it takes, as equal as can be."""
    counts = [-(-len(row) // size) for row in rows]
    return [[list(row[start::count]) for start in range(count)] for row, count in zip(rows, counts, strict=True)]

"""How far apart the choices of two methods are: the Jaccard distance of the sets of units that slide (paper 4.2)."""

import math
from collections.abc import Sequence

from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit

Matrix = tuple[tuple[float, ...], ...]
"""Square; row and column i belong to the i-th mask."""


def jaccard_distance(first: HeadMask, second: HeadMask) -> float:
    """1 - |A & B| / |A | B| for the units A and B that slide, from 0 (the same units) to 1 (none in common).

    Two masks that localize nothing are the same choice: their distance is 0. Window and sinks play no part.

    Raises:
        BoschError: the masks are of different layouts.
    """
    return distance_matrix([first, second])[0][1]


def distance_matrix(masks: Sequence[HeadMask]) -> Matrix:
    """Jaccard distances between all pairs of masks: symmetric, 0 on the diagonal.

    Raises:
        BoschError: the masks are of different layouts.
    """
    for mask in masks:
        if mask.layout != masks[0].layout:
            raise BoschError(
                f"masks of different models cannot be compared: one has {masks[0].layout}, another {mask.layout}"
            )
    chosen = [mask.localized for mask in masks]
    return tuple(tuple(_distance(row, column) for column in chosen) for row in chosen)


def chance_distance(num_units: int, first: int, second: int) -> float:
    """Mean Jaccard distance of two random masks that localize so many of the units: what a distance is to be read
    against, for it depends on the ratio alone.

    Args:
        num_units: N, units of the model.
        first, second: units that the one and the other mask localize, at most N each.
    """
    mean = 0.0
    for shared in range(max(0, first + second - num_units), min(first, second) + 1):
        ways = math.comb(first, shared) * math.comb(num_units - first, second - shared)
        mean += ways / math.comb(num_units, second) * _distance_by_count(shared, first + second - shared)
    return mean


def _distance(first: frozenset[Unit], second: frozenset[Unit]) -> float:
    return _distance_by_count(len(first & second), len(first | second))


def _distance_by_count(shared: int, united: int) -> float:
    return 1 - shared / united if united else 0.0

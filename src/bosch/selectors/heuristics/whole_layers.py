"""Whole layers, and one split where the budget does not fall between two."""

from collections.abc import Callable, Sequence

from bosch.heads import HeadMask, Unit
from bosch.selectors.contract import Problem

Pattern = Callable[[int, int], list[int]]
"""From a number of layers and how many of them are full, which are; the last of them may be split."""


def keep_layers(problem: Problem, ratio: float, pattern: Pattern) -> HeadMask:
    """Keep a pattern of eligible layers full and localize all others, `ceil(ratio * N)` units exactly.

    The fewest layers that hold all units that stay full are kept; of the last of them, only as many units as are
    still needed, the first ones.
    """
    layout, layers = problem.layout, problem.layout.eligible_layers
    num_full = layout.num_units - layout.num_localized(ratio)
    chosen: Sequence[int] = []
    while sum(layout.units_per_layer[layer] for layer in chosen) < num_full:
        chosen = [layers[index] for index in pattern(len(layers), len(chosen) + 1)]
    kept: list[Unit] = [(layer, head) for layer in chosen for head in range(layout.units_per_layer[layer])]
    return problem.full.localize(set(layout.units()) - set(kept[:num_full]))

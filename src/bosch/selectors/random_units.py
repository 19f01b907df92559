"""Random units: what a mask is worth that nobody chose."""

import random

from bosch.heads import HeadMask
from bosch.selectors.contract import Problem, Selection, StageListener


def random_units(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Every set of units is equally likely; arguments as in `Selector`."""
    return Selection(random_mask(problem.full, ratio, seed), {"method": "random", "seed": seed})


def random_mask(full: HeadMask, ratio: float, seed: int) -> HeadMask:
    """A mask that localizes `ceil(ratio * N)` units, each choice equally likely.

    Args:
        full: the all-full mask, which gives layout, window and sinks.
        ratio: share of sliding units.
        seed: the same seed gives the same mask in any process.
    """
    units = list(full.layout.units())
    return full.localize(random.Random(f"random units {seed}").sample(units, full.layout.num_localized(ratio)))

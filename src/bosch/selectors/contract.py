"""What a selector is: a function from an objective and a ratio to a mask."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from bosch.heads import HeadMask
from bosch.objective import Objective

StageListener = Callable[[str, int], None]
"""Told the name of each stage as it begins, and how many evaluations are planned in it."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a selector chose.

    Args:
        mask: localizes exactly `ceil(ratio * N)` units.
        record: every choice on the way, as plain data for `selection.json`.
        sensitivity: for each layer, how much the normalized score fell when it (or a part of it) was localized.
        path: masks at smaller ratios that were chosen on the way, smallest ratio first.
    """

    mask: HeadMask
    record: dict[str, Any]
    sensitivity: dict[int, float]
    path: tuple[HeadMask, ...] = ()


class Selector(Protocol):
    """A method that picks which units slide."""

    def __call__(
        self, objective: Objective, ratio: float, *, budget: int, seed: int, on_stage: StageListener
    ) -> Selection:
        """Select exactly `ceil(ratio * N)` units.

        Args:
            objective: normalized score of any mask; remembers masks that it has seen.
            ratio: target share of sliding units, in [0, 1].
            budget: evaluations per eligible layer (the paper's kappa).
            seed: the same arguments give the same mask.
            on_stage: hears how far the search has come.
        """
        ...

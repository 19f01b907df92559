"""What a selector is: a function from a problem and a ratio to a mask."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from bosch.cost import Cost
from bosch.heads import HeadLayout, HeadMask, Unit
from bosch.objective import Objective

if TYPE_CHECKING:
    from bosch.probing import Subject

StageListener = Callable[[str, int], None]
"""Told the name of each stage as it begins, and how many evaluations are planned in it."""

UnitScores = Mapping[Unit, float]
"""A number for every unit; the larger, the more local, and the sooner localized."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Unit scores, and what they cost."""

    scores: UnitScores
    cost: Cost


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a selector may ask about a model.

    Args:
        objective: normalized score of any mask; remembers masks that it has seen.
        subject: the full model and its calibration set, for methods that look inside.
        measured: unit scores that are known already, by the name of their method.
        share_of_exchanges: the part that a greedy method may spend of what its budget leaves for improving its mask;
            below 1 where one search has several ratios.
    """

    objective: Objective
    subject: "Subject | None" = None
    measured: Mapping[str, Measured] = dataclasses.field(default_factory=dict)
    share_of_exchanges: float = 1.0

    @property
    def layout(self) -> HeadLayout:
        """The model's units."""
        return self.objective.scorer.layout

    @property
    def full(self) -> HeadMask:
        """The mask to begin with: nothing slides."""
        return self.objective.scorer.full


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a selector chose.

    Args:
        mask: localizes exactly `ceil(ratio * N)` units.
        record: every choice on the way, as plain data for `selection.json`.
        sensitivity: for each layer, how much the normalized score fell when it (or a part of it) was localized; empty
            where the method does not measure that.
        path: masks at smaller ratios that were chosen on the way, smallest ratio first.
    """

    mask: HeadMask
    record: dict[str, Any]
    sensitivity: dict[int, float] = dataclasses.field(default_factory=dict)
    path: tuple[HeadMask, ...] = ()


class Selector(Protocol):
    """A method that picks which units slide."""

    def __call__(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Select exactly `ceil(ratio * N)` units.

        Args:
            problem: the model, seen through its scores and its attention.
            ratio: target share of sliding units, in [0, 1].
            budget: evaluations per eligible layer (the paper's kappa); methods that score no mask have no use for it.
            seed: the same arguments give the same mask.
            on_stage: hears how far the search has come.
        """
        ...

"""What a method costs: the masks that it asked to be scored, and whatever else it ran."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bosch.heads import HeadMask

if TYPE_CHECKING:
    from bosch.evaluator import Evaluator
    from bosch.objective import Score


@dataclasses.dataclass(frozen=True)
class Cost:
    """Work done, however much of it was known already.

    Args:
        evaluations: different masks scored.
        full_passes: layers run on tokens, as a multiple of one plain pass over the calibration set.
        seconds: wall time of that work when it was done.
    """

    evaluations: int
    full_passes: float
    seconds: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.evaluations + other.evaluations,
            self.full_passes + other.full_passes,
            self.seconds + other.seconds,
        )


class CountingScorer:
    """An evaluator as one method sees it: which masks that method asked for is remembered.

    Args:
        evaluator: scores the masks; others may ask it as well.
    """

    def __init__(self, evaluator: "Evaluator") -> None:
        self.evaluator = evaluator
        self.layout = evaluator.layout
        self.full = evaluator.full
        self.sliding = evaluator.sliding
        self.asked: set[HeadMask] = set()

    def score(self, mask: HeadMask) -> "Score":
        """Score of a mask."""
        self.asked.add(mask)
        return self.evaluator.score(mask)

    def cost(self, masks: Iterable[HeadMask]) -> Cost:
        """What known masks cost when they were run."""
        return self.evaluator.cost(masks)

    def rebase(self, mask: HeadMask) -> None:
        """The next masks will resemble this one."""
        self.evaluator.rebase(mask)

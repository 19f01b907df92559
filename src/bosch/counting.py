"""Whose evaluations are whose, where several methods share an evaluator."""

from collections.abc import Callable, Iterable

from bosch.cost import Cost
from bosch.heads import HeadMask
from bosch.objective import MaskScorer, Score


class CountingScorer:
    """An evaluator as one method sees it: which masks that method asked for is remembered.

    Args:
        evaluator: scores the masks; others may ask it as well.
    """

    def __init__(self, evaluator: MaskScorer) -> None:
        self.evaluator = evaluator
        self.layout = evaluator.layout
        self.full = evaluator.full
        self.sliding = evaluator.sliding
        self.asked: set[HeadMask] = set()

    def score(self, mask: HeadMask) -> Score:
        """Score of a mask."""
        self.asked.add(mask)
        return self.evaluator.score(mask)

    def score_while(self, mask: HeadMask, is_wanted: Callable[[Score], bool]) -> tuple[Score, bool]:
        """Score of a mask as long as it is wanted."""
        self.asked.add(mask)
        return self.evaluator.score_while(mask, is_wanted)

    def cost(self, masks: Iterable[HeadMask]) -> Cost:
        """What known masks cost when they were run."""
        return self.evaluator.cost(masks)

    def rebase(self, mask: HeadMask) -> None:
        """The next masks will resemble this one."""
        self.evaluator.rebase(mask)

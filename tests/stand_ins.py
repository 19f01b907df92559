"""A scorer that needs no model."""

from bosch.heads import HeadLayout, HeadMask
from bosch.scoring.objective import Cost, Score


class StandInScorer:
    """The score of a mask follows from how many of its units slide: that many of a list of -NLLs."""

    def __init__(self, layout: HeadLayout, scores: list[float]) -> None:
        self.layout, self.scores = layout, scores
        self.full = HeadMask.all_full(layout, window=4)
        self.sliding = HeadMask.all_sliding(layout, window=4)

    def score(self, mask: HeadMask) -> Score:
        return Score((True,), (-self.scores[mask.num_localized],))

    def score_while(self, mask, is_wanted) -> tuple[Score, bool]:
        return self.score(mask), True

    def cost(self, masks) -> Cost:
        return Cost(0, 0.0, 0.0)

    def rebase(self, mask: HeadMask) -> None:
        pass

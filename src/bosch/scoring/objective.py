"""What a mask is worth and what it cost: the score, its two anchors, and the normalized score that a search maximises
(paper Eq. 2).

The paper's penalty on the distance to the target ratio (Eq. 3) is zero on every mask that is scored: the optimizers
propose none that misses its quota, see `bosch.optimizers.loop`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from statistics import fmean
from typing import Protocol

from bosch.common.lookup import lookup
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask


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


@dataclasses.dataclass(frozen=True)
class Score:
    """How well the answers of a set of examples are predicted under teacher forcing.

    Args:
        hits: for each example, whether every answer token is the argmax at its position (paper 3.3).
        nlls: for each example, the mean negative log-likelihood of its answer tokens, in nats.
    """

    hits: tuple[bool, ...]
    nlls: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """Share of examples answered; higher is better."""
        return sum(self.hits) / len(self.hits)

    @property
    def nll(self) -> float:
        """Mean answer NLL in nats a token; lower is better."""
        return fmean(self.nlls)

    def check_finite(self, whose: str) -> None:
        """Refuse to report what is no number.

        Raises:
            BoschError: the NLL is not finite; it begins with whose it is.
        """
        if not math.isfinite(self.nll):
            raise BoschError(
                f"{whose}: the answer NLL is {self.nll}, expected a finite number; if the weights are sound, "
                "--dtype float32 may give one"
            )


def _accuracy_then_nll(score: Score) -> float:
    """Accuracy, with the NLL deciding between equals: its part is always smaller than one example's."""
    return score.accuracy + 0.5 / (1.0 + score.nll) / len(score.hits)


OBJECTIVES: dict[str, Callable[[Score], float]] = {
    "nll": lambda score: -score.nll,
    "accuracy": lambda score: score.accuracy,
    "accuracy+nll": _accuracy_then_nll,
}
"""The paper's is `accuracy`. All are higher-is-better."""


class MaskScorer(Protocol):
    """What an objective needs of an evaluator."""

    layout: HeadLayout
    full: HeadMask
    sliding: HeadMask

    def score(self, mask: HeadMask) -> Score:
        """Score of a mask on the calibration set."""
        ...

    def score_while(self, mask: HeadMask, is_wanted: Callable[[Score], bool]) -> tuple[Score, bool]:
        """Score of a mask and True; or False and its score if all examples not yet run were answered with certainty,
        once that is not wanted any more."""
        ...

    def cost(self, masks: Iterable[HeadMask]) -> Cost:
        """What masks that were scored cost."""
        ...

    def rebase(self, mask: HeadMask) -> None:
        """Hear that the next masks will resemble this one."""
        ...


@dataclasses.dataclass(frozen=True)
class Bound:
    """What is known of a mask's normalized score.

    Args:
        score: the score, or a number that it cannot exceed.
        is_exact: whether it is the score itself.
    """

    score: float
    is_exact: bool


class Objective:
    """The normalized score of masks: 0 with every unit sliding, 1 with every unit full.

    Args:
        scorer: gives the score of a mask.
        kind: one of `OBJECTIVES`.

    Raises:
        BoschError: unknown kind. `anchors` raises it where the examples cannot tell a full model from a sliding one.
    """

    def __init__(self, scorer: MaskScorer, kind: str) -> None:
        self.scorer = scorer
        self.kind = kind
        self.asked: set[HeadMask] = set()
        self._value = lookup("objective", kind, OBJECTIVES)

    def score(self, mask: HeadMask) -> Score:
        """Score of a mask; which masks were asked for is remembered, as others may ask the same scorer."""
        self.asked.add(mask)
        return self.scorer.score(mask)

    def cost(self) -> Cost:
        """What the masks that were asked for cost when they were run."""
        return self.scorer.cost(self.asked)

    @cached_property
    def anchors(self) -> tuple[float, float]:
        """The paper's a and b: the raw objective with every unit sliding, and with every unit full."""
        low = self._value(self.score(self.scorer.sliding))
        high = self._value(self.score(self.scorer.full))
        if not high > low:
            raise BoschError(
                f"the calibration set cannot tell this model from its all-sliding self ({self.kind} {high:.4g} full, "
                f"{low:.4g} sliding; expected full above sliding): use shorter examples, easier tasks, a smaller window"
            )
        return low, high

    def normalized(self, score: Score) -> float:
        """(S - a) / (b - a), paper Eq. 2."""
        low, high = self.anchors
        value = (self._value(score) - low) / (high - low)
        return value if math.isfinite(value) else -math.inf

    def __call__(self, mask: HeadMask) -> float:
        """Normalized score of a mask; higher is better."""
        return self.normalized(self.score(mask))

    def at_least(self, mask: HeadMask, floor: float) -> Bound:
        """Normalized score of a mask that is of use only if it reaches the floor.

        Exact for every mask that does. One that does not may be given up before all examples are run, as soon as it
        would miss the floor even if the others were answered with certainty; no objective rises with an example's
        NLL, or falls with its hit.
        """
        self.asked.add(mask)
        score, is_exact = self.scorer.score_while(mask, lambda optimistic: self.normalized(optimistic) >= floor)
        return Bound(self.normalized(score), is_exact)

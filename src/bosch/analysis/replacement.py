"""The replacement test (paper C.1): does it matter that units left the choice when the ratio grew?

The units that departed between two ratios take the place of as many random ones in the larger choice A. Were the
locality of a unit a fixed property, the result A' would be about as good as A.
"""

import dataclasses
import random
from typing import Protocol

from bosch.analysis.turnover import Turnover
from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit
from bosch.objective import Score


class Scorer(Protocol):
    """What the test needs of an evaluator."""

    def score(self, mask: HeadMask) -> Score:
        """Score of a mask."""
        ...


@dataclasses.dataclass(frozen=True)
class Replacement:
    """One outcome of the test.

    Args:
        seed: of the random units.
        mask: A'.
        score: of A'.
    """

    seed: int
    mask: HeadMask
    score: Score


def units_to_put_back(smaller: HeadMask, larger: HeadMask) -> frozenset[Unit]:
    """Units that slide at the smaller ratio and not at the larger one, of two masks that the test can be made with.

    Raises:
        BoschError: the masks differ in layout, window or sinks, are not of growing size, or no unit departed.
    """
    ways = [(mask.window, mask.layer_windows, mask.sinks) for mask in (smaller, larger)]
    if ways[0] != ways[1]:
        raise BoschError(
            f"the masks slide differently: the smaller with window {smaller.shown_window} and {smaller.sinks} sinks, "
            f"the larger with window {larger.shown_window} and {larger.sinks} sinks"
        )
    departed = Turnover(smaller, larger).departed
    if not departed:
        raise BoschError(
            f"all {smaller.num_localized} units that slide in the smaller mask slide in the larger one too; "
            "there is none to put back"
        )
    return departed


def replace_randomly(smaller: HeadMask, larger: HeadMask, seed: int) -> HeadMask:
    """A': the units to put back slide, and as many random ones of those that slide in the larger mask become full.

    Every choice of the latter is equally likely. The number of sliding units, and so the ratio, stays.

    Args:
        smaller: the mask at the smaller ratio.
        larger: the mask at the larger ratio; the same layout, window and sinks.
        seed: the same seed gives the same mask in any process.

    Raises:
        BoschError: as `units_to_put_back`.
    """
    departed = units_to_put_back(smaller, larger)
    displaced = random.Random(f"replacement {seed}").sample(sorted(larger.localized), len(departed))
    return larger.assign({**dict.fromkeys(displaced, True), **dict.fromkeys(departed, False)})


def score_replacements(
    smaller: HeadMask, larger: HeadMask, scorer: Scorer, num_seeds: int
) -> tuple[Score, tuple[Replacement, ...]]:
    """The score of A, and A' with its score for the seeds 0, 1, ... (the paper takes three).

    Raises:
        BoschError: as `units_to_put_back`, or the scorer refuses the masks.
    """
    masks = [replace_randomly(smaller, larger, seed) for seed in range(num_seeds)]
    original = scorer.score(larger)
    return original, tuple(Replacement(seed, mask, scorer.score(mask)) for seed, mask in enumerate(masks))

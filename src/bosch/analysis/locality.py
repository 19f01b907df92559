"""How local units look against which were chosen: do the scores of a static method foretell a mask (paper 4.3)?"""

import dataclasses
import itertools
from functools import cached_property
from typing import TYPE_CHECKING

from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit

if TYPE_CHECKING:
    from bosch.selectors.contract import UnitScores


@dataclasses.dataclass(frozen=True)
class LocalityChoice:
    """Unit scores beside a mask that was chosen without them.

    Args:
        scores: for every unit of the mask a finite number; the larger, the more local.
        mask: the choice.

    Raises:
        BoschError: the scores are of other units than the mask.
    """

    scores: "UnitScores"
    mask: HeadMask

    def __post_init__(self) -> None:
        if self.scores.keys() != set(self.mask.layout.units()):
            raise BoschError(f"the scores are of other units than those of the mask, {self.mask.layout}")

    @cached_property
    def ranking(self) -> tuple[Unit, ...]:
        """All units, most local first; of equals, the lower layer and head first, as static methods rank them."""
        return tuple(sorted(self.scores, key=lambda unit: (-self.scores[unit], unit)))

    @property
    def agreement(self) -> float | None:
        """Share of the sliding units that the ranking, cut at the same ratio, localizes too; None where none slides.
        A random ranking has the mask's ratio."""
        count = self.mask.num_localized
        return len(self.mask.localized.intersection(self.ranking[:count])) / count if count else None

    @property
    def separation(self) -> float | None:
        """Probability that a random sliding unit has a higher score than a random full one, equals counted half: the
        area under the ROC curve. 0.5 says that the scores foretell nothing. None where all units are alike."""
        sliding = [self.scores[unit] for unit in self.mask.localized]
        full = [score for unit, score in self.scores.items() if self.mask[unit]]
        if not sliding or not full:
            return None
        won = sum((s > f) + (s == f) / 2 for s, f in itertools.product(sliding, full))
        return won / (len(sliding) * len(full))

    def share_by_rank(self, parts: int) -> list[tuple[int, int, float]]:
        """The ranking in equal parts, as far as it divides, and no more parts than units: for each, its first place,
        the place after its last, and the share of its units that slide."""
        count = len(self.ranking)
        parts = min(parts, count)
        edges = [part * count // parts for part in range(parts + 1)]
        sliding = [not self.mask[unit] for unit in self.ranking]
        return [(start, end, sum(sliding[start:end]) / (end - start)) for start, end in itertools.pairwise(edges)]

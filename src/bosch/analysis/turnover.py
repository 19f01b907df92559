"""How many units leave the choice when the ratio grows (paper 4.3)."""

import dataclasses

from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit


@dataclasses.dataclass(frozen=True)
class Turnover:
    """What became of the units of a mask in a mask of a larger ratio.

    Args:
        smaller: the mask at the smaller ratio.
        larger: the mask at the larger ratio.

    Raises:
        BoschError: the masks are of different layouts, the smaller one localizes nothing, or not fewer units than the
            larger one.
    """

    smaller: HeadMask
    larger: HeadMask

    def __post_init__(self) -> None:
        small, large = self.smaller.num_localized, self.larger.num_localized
        if self.smaller.layout != self.larger.layout:
            raise BoschError(
                f"masks of different models cannot be compared: the smaller has {self.smaller.layout}, "
                f"the larger {self.larger.layout}"
            )
        if not 0 < small < large:
            raise BoschError(
                f"turnover needs a mask that localizes some units and one that localizes more, got {small} and {large}"
            )

    @property
    def departed(self) -> frozenset[Unit]:
        """Units that slide at the smaller ratio and not at the larger one (the paper's Delta A)."""
        return self.smaller.localized - self.larger.localized

    @property
    def most_departed(self) -> int:
        """The most units that could depart: all of the smaller mask, as far as the larger one leaves room for them."""
        return min(self.smaller.num_localized, self.larger.layout.num_units - self.larger.num_localized)

    @property
    def share(self) -> float:
        """T: departed units as a share of those that slide at the smaller ratio."""
        return len(self.departed) / self.smaller.num_localized

    @property
    def maximum(self) -> float:
        """T_max: the largest T that two masks of these sizes can have."""
        return self.most_departed / self.smaller.num_localized

    @property
    def normalized(self) -> float | None:
        """T / T_max; None where no unit could depart, because everything slides at the larger ratio."""
        return len(self.departed) / self.most_departed if self.most_departed else None

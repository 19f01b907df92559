"""How many units leave the choice when the ratio grows (paper 4.3)."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bosch.common.files import write_json
from bosch.common.output import AnalysisDirectory
from bosch.common.tables import text_table, write_csv
from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit
from bosch.runs import MaskFile, by_ratio, name_masks
from bosch.version import __version__


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


TURNOVER_SCHEMA = "bosch.turnover/1"

NamedTurnover = tuple[str, str, Turnover]
"""Names of the smaller and of the larger mask, and what happened between them."""


def measure_turnover(files: Sequence[MaskFile]) -> tuple[NamedTurnover, ...]:
    """Turnover from each mask to the one with the next larger ratio.

    Raises:
        BoschError: fewer than two masks, two of one ratio, or one that localizes nothing.
    """
    if len(files) < 2:
        raise BoschError(f"turnover needs two masks or more, got {len(files)}")
    groups = by_ratio(files)
    for group in groups:
        if len(group) > 1:
            raise BoschError(
                f"turnover needs one mask a ratio, but {group[0].path} and {group[1].path} both localize "
                f"{group[0].mask.num_localized} units"
            )
    named = name_masks(file for (file,) in groups)
    return tuple((a, b, Turnover(smaller, larger)) for (a, smaller), (b, larger) in itertools.pairwise(named.items()))


def turnover_table(found: Sequence[NamedTurnover]) -> str:
    """As in the paper's Table 3, a pair a row."""
    rows = [
        [
            f"{one.smaller.ratio:.3g} → {one.larger.ratio:.3g}",
            f"{len(one.departed)} of {one.smaller.num_localized}",
            f"{one.share:.0%}",
            f"{one.maximum:.0%}",
            "" if one.normalized is None else f"{one.normalized:.0%}",
        ]
        for _, _, one in found
    ]
    return "\n".join(text_table(["ratios", "departed", "T", "T_max", "T / T_max"], rows))


def write_turnover(found: Sequence[NamedTurnover], directory: Path, *, overwrite: bool = False) -> None:
    """Write the numbers and the departed units as JSON, and the numbers as CSV.

    Raises:
        BoschError: the files are there already.
    """
    pairs = [_data(*named) for named in found]
    columns = [name for name in pairs[0] if name != "departed"]
    with AnalysisDirectory(directory).claimed({"analysis": "turnover", "pairs": pairs}, overwrite=overwrite) as claim:
        claim.begin()
        write_json(directory / "turnover.json", {"schema": TURNOVER_SCHEMA, "bosch": __version__, "pairs": pairs})
        write_csv(directory / "turnover.csv", columns, ([pair[name] for name in columns] for pair in pairs))


def _data(smaller: str, larger: str, found: Turnover) -> dict[str, Any]:
    return {
        "smaller": smaller,
        "larger": larger,
        "smaller_ratio": found.smaller.ratio,
        "larger_ratio": found.larger.ratio,
        "smaller_units": found.smaller.num_localized,
        "larger_units": found.larger.num_localized,
        "num_departed": len(found.departed),
        "turnover": found.share,
        "maximum": found.maximum,
        "normalized": found.normalized,
        "departed": sorted(found.departed),
    }

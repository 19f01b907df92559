"""Turnover between adjacent ratios (paper, Table 3)."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bosch
from bosch.analysis.masks import MaskFile, by_ratio, name_masks
from bosch.analysis.output import claim
from bosch.analysis.turnover import Turnover
from bosch.errors import BoschError
from bosch.files import write_json
from bosch.tables import text_table, write_csv

TURNOVER_SCHEMA = "bosch.turnover/1"
FILES = ("turnover.json", "turnover.csv")

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
    claim(directory, FILES, overwrite=overwrite)
    pairs = [_data(*named) for named in found]
    write_json(directory / "turnover.json", {"schema": TURNOVER_SCHEMA, "bosch": bosch.__version__, "pairs": pairs})
    columns = [name for name in pairs[0] if name != "departed"]
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

"""How local units look against which were chosen: do the scores of a static method foretell a mask (paper 4.3)?"""

import dataclasses
import itertools
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from bosch.common.files import write_json
from bosch.common.output import AnalysisDirectory
from bosch.common.pictures import ABSENT, FULL, SLIDING, new_figure, save_figure
from bosch.common.tables import write_csv
from bosch.errors import BoschError
from bosch.heads import HeadMask, Unit
from bosch.version import __version__

if TYPE_CHECKING:
    from bosch.selectors.method import UnitScores


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


NUM_PARTS = 10
"""Of the ranking, in the lowest row."""


def draw_locality(found: LocalityChoice, scorer: str, chooser: str, path: Path) -> None:
    """The units from most to least local: their scores, which of them slide, and the share that slides of each tenth.

    Left of the line are the units that a cut of the ranking at the mask's ratio localizes.

    Args:
        found: scores and mask.
        scorer: the method that the scores are of.
        chooser: what the mask is called.
        path: without an ending.
    """
    figure = new_figure(8, 5)
    scores, choice, shares = figure.subplots(3, 1, sharex=True, height_ratios=[6, 1, 2])
    _draw_scores(scores, found)
    sliding = [[int(not found.mask[unit]) for unit in found.ranking]]
    choice.pcolormesh(sliding, cmap=ListedColormap([FULL, SLIDING]), vmin=0, vmax=1)
    choice.set_yticks([])
    choice.set_ylabel("choice", rotation=0, ha="right", va="center")
    _draw_shares(shares, found)
    for axes in (scores, choice, shares):
        axes.axvline(found.mask.num_localized, color="black", linewidth=0.8, linestyle="--")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, len(found.ranking))
    scores.set_title(f"Units ranked by {scorer}, and what {chooser} chose", fontsize=10, parse_math=False)
    scores.set_ylabel(f"{scorer} score", parse_math=False)
    shares.set_xlabel("units, most local first; left of the line, the ranking would localize")
    shown = [Patch(color=SLIDING, label="sliding"), Patch(color=FULL, label="full")]
    scores.legend(handles=shown, fontsize=8, frameon=False, loc="upper right")
    save_figure(figure, path)


def _draw_scores(axes: Axes, found: LocalityChoice) -> None:
    count = len(found.ranking)
    values = [found.scores[unit] for unit in found.ranking]
    colours = [FULL if found.mask[unit] else SLIDING for unit in found.ranking]
    axes.scatter([i + 0.5 for i in range(count)], values, c=colours, s=min(24, max(5, 2500 / count)), linewidths=0)


def _draw_shares(axes: Axes, found: LocalityChoice) -> None:
    for start, end, share in found.share_by_rank(NUM_PARTS):
        axes.bar(start, 1, end - start, align="edge", color=ABSENT, edgecolor="white")
        axes.bar(start, share, end - start, align="edge", color=SLIDING, edgecolor="white")
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_ylabel("share\nsliding")


LOCALITY_SCHEMA = "bosch.locality/1"


def write_locality(
    found: LocalityChoice, scorer: str, chooser: str, directory: Path, *, overwrite: bool = False
) -> str:
    """Write every unit's score and fate as CSV, both summaries as JSON, and the picture.

    Args:
        found: scores and mask.
        scorer: the method that the scores are of.
        chooser: what the mask is called.
        directory: where to.
        overwrite: replace another analysis that is there.

    Returns:
        The summaries in words.

    Raises:
        BoschError: the files are there already.
    """
    rows = (
        (rank, *unit, found.scores[unit], int(not found.mask[unit])) for rank, unit in enumerate(found.ranking, start=1)
    )
    summary = {
        "schema": LOCALITY_SCHEMA,
        "scores": scorer,
        "mask": chooser,
        "ratio": found.mask.ratio,
        "agreement": found.agreement,
        "separation": found.separation,
    }
    asked = {"analysis": "locality", "key": found.mask.key(), **summary}
    with AnalysisDirectory(directory).claimed(asked, overwrite=overwrite) as claim:
        claim.begin()
        write_csv(directory / "locality.csv", ["rank", "layer", "head", "score", "sliding"], rows)
        write_json(directory / "locality.json", {**summary, "bosch": __version__})
        draw_locality(found, scorer, chooser, directory / "locality")
    return _words(found, scorer, chooser)


def _words(found: LocalityChoice, scorer: str, chooser: str) -> str:
    if found.agreement is None or found.separation is None:
        return f"{chooser} makes no choice: {found.mask}"
    return (
        f"{scorer} would localize {found.agreement:.0%} of the units that {chooser} localizes "
        f"(a random ranking {found.mask.ratio:.0%}); a sliding unit looks more local than a full one "
        f"with probability {found.separation:.2f}"
    )

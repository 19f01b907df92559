"""How local the units look, in the order of their scores, and which of them were chosen."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from bosch.analysis.locality import LocalityChoice
from bosch.analysis.pictures.style import new_figure
from bosch.pictures import ABSENT, FULL, SLIDING, save_figure

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

"""The models of a benchmark: the original, and a hybrid for each ratio and window."""

import dataclasses
from pathlib import Path

from bosch.analysis.masks import load_mask
from bosch.bench.settings import BenchSettings
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.selectors import random_mask

DEFAULT_WINDOW = 1024
"""Tokens, as in the paper's Figure 5."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A hybrid before the model's layout is known.

    Args:
        ratio: as asked for, or of the given mask, rounded.
        window: W, in tokens.
        mask: given by the user; None: units drawn by a seed.
    """

    ratio: float
    window: int
    mask: HeadMask | None = None

    @property
    def name(self) -> str:
        """What tells it from the others of a benchmark."""
        return f"{self.ratio} sliding, W = {self.mask.shown_window if self.mask else self.window}"

    def make_mask(self, layout: HeadLayout, seed: int) -> HeadMask:
        """The mask for a model.

        Raises:
            BoschError: the given mask is for another layout.
        """
        if self.mask is None:
            return random_mask(HeadMask.all_full(layout, self.window), self.ratio, seed)
        if self.mask.layout != layout:
            raise BoschError(f"the mask was made for a model with {self.mask.layout}, but this model has {layout}")
        return self.mask


def make_variants(settings: BenchSettings) -> tuple[Variant, ...]:
    """The hybrids, each once, by window and then by ratio.

    Raises:
        BoschError: the mask's file cannot be read or is no mask.
    """
    if settings.mask is None:
        pairs = [(ratio, window) for window in settings.windows or (DEFAULT_WINDOW,) for ratio in settings.ratios]
        return tuple(Variant(ratio, window) for ratio, window in dict.fromkeys(pairs))
    mask = load_mask(Path(settings.mask)).mask
    masks = [dataclasses.replace(mask, window=window, layer_windows=()) for window in dict.fromkeys(settings.windows)]
    return tuple(Variant(round(one.ratio, 3), one.window, one) for one in masks or [mask])

"""What a benchmark is asked to do, and the models that it measures: the original, and a hybrid for each ratio and
window."""

import dataclasses
from pathlib import Path

from bosch.common.options import check_integer, option
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask, quota
from bosch.runs import load_mask

WARM_UP_STEPS = 3
"""Decoded tokens that are not timed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """All that determines what is measured. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the mask's file to be judged is judged later.
    """

    model: str = option("a name that `bosch models` lists, a directory, or a hub id")
    contexts: tuple[int, ...] = option("tokens in the cache before decoding, comma-separated")
    ratios: tuple[float, ...] = option(
        "shares of the KV groups that slide, comma-separated; the groups are drawn at random", ()
    )
    mask: str | None = option("instead of ratios: a mask file, or the directory of a finished search", None)
    windows: tuple[int, ...] = option(
        "W, tokens that a sliding head sees; several are comma-separated (default: 1024, or the mask's own)", ()
    )
    random_weights: bool = option("read only the config: weights at random, contexts of any length", False)
    chunk: int = option("tokens of the prompt that enter the model at a time", 8192)
    new_tokens: int = option("decoded tokens that are timed, one by one", 32)
    seed: int = option("of the tokens, of the random weights, and of the units that slide at a ratio", 0)
    dtype: str = option("float32, bfloat16, or auto: bfloat16 where the hardware multiplies it fast", "auto")
    device: str = option("a torch device, or auto: the GPU if there is one", "auto")
    trust_remote_code: bool = option("let the checkpoint run Python code of its own", False)

    def __post_init__(self) -> None:
        if not self.contexts:
            raise BoschError("at least one context length is needed")
        if bool(self.ratios) == (self.mask is not None):
            found = "both" if self.ratios else "neither"
            raise BoschError(f"expected either ratios or a mask, which says the ratio itself; got {found}")
        for ratio in self.ratios:
            quota(ratio, 1)
        for context in self.contexts:
            check_integer("context", context, 1)
        for window in self.windows:
            check_integer("window", window, 1)
        for name, least in (("chunk", 1), ("new_tokens", 1), ("seed", 0)):
            check_integer(name, getattr(self, name), least)

    @property
    def num_positions(self) -> int:
        """Tokens of the longest sequence, the decoded ones included."""
        return max(self.contexts) + WARM_UP_STEPS + self.new_tokens


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
            from bosch.selectors import random_mask  # imports torch, which `bosch bench --help` need not wait for

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

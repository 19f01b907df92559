"""The models of an evaluation: what the user named, with the masks and at the windows that were asked for."""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.common.provenance import model_hash
from bosch.decoder import Decoder, modes_kept
from bosch.deploy.hybridize import mask_of, set_window
from bosch.deploy.modeling_bosch import BoschMixin
from bosch.deploy.recipe import Recipe, open_target, read_target
from bosch.errors import BoschError
from bosch.evaluation.settings import EvalSettings
from bosch.heads import HeadMask
from bosch.models.packaged import MODELS
from bosch.models.positions import num_positions
from bosch.runs import load_masks, name_masks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Given:
    """A model that is loaded already, and the masks to be evaluated beside it.

    Args:
        model: in whatever dtype and wherever it is; it is left as it was.
        tokenizer: the model's.
        masks: by name.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    masks: Mapping[str, HeadMask]


@dataclasses.dataclass(frozen=True)
class Target:
    """A model of an evaluation.

    Args:
        name: what tells it from the others.
        source: a recipe, the name of a model, or one that is loaded already.
        mask: that a loaded model is to run under; None: as it is.
    """

    name: str
    source: Recipe | str | Given
    mask: HeadMask | None = None

    def at(self, window: int) -> str:
        """What its rows at another window than its own are called."""
        return f"{self.name}, W = {window}"

    @contextlib.contextmanager
    def opened(self, settings: EvalSettings) -> Iterator[tuple["PreTrainedModel", "PreTrainedTokenizerBase"]]:
        """The live model, in eval mode: deployed with its small cache, or one that was given, under its mask.

        Raises:
            BoschError: it cannot be loaded, or the mask is not for it.
        """
        if not isinstance(self.source, Given):
            yield open_target(
                self.source,
                dtype=settings.dtype,
                device=settings.device,
                trust_remote_code=settings.trust_remote_code,
                yarn=settings.yarn,
            )
            return
        model, tokenizer = self.source.model, self.source.tokenizer
        with modes_kept(model):
            model.eval()
            with Decoder(model).hybrid(self.mask) if self.mask else contextlib.nullcontext():
                yield model, tokenizer


def given_targets(name: str, given: Given, windows: Sequence[int]) -> tuple[Target, ...]:
    """A loaded model, and after it each of its masks, at its own window or at those that were asked for.

    Args:
        name: of the model.
        given: model and masks.
        windows: in tokens; none for the masks' own.
    """
    hybrids = []
    for called, mask in given.masks.items():
        target = Target(called if called != name else f"{called} (mask)", given, mask)
        others = [dataclasses.replace(mask, window=window, layer_windows=()) for window in dict.fromkeys(windows)]
        hybrids += [Target(target.at(one.window), given, one) for one in others] or [target]
    return (Target(name, given), *hybrids)


def make_targets(settings: EvalSettings) -> tuple[Target, ...]:
    """The models in the order in which they were named, masks after the model that they are put on.

    Raises:
        BoschError: a target is an unfinished search or given twice, or a mask cannot be read.
    """
    if twice := [target for target, times in collections.Counter(settings.targets).items() if times > 1]:
        raise BoschError(f"{twice[0]} is given twice; expected different targets")
    names = _short_names(settings.targets)
    targets = [Target(name, read_target(target)) for name, target in zip(names, settings.targets, strict=True)]
    return (*targets, *(_put_masks(targets[0], settings) if settings.mask else ()))


def at_windows(model: "PreTrainedModel", target: Target, windows: Sequence[int]) -> Iterator[str]:
    """The names of a loaded model's rows; meanwhile a hybrid has one window after the other, where some are given."""
    if not windows or not isinstance(model, BoschMixin):
        yield target.name
        return
    for window in dict.fromkeys(windows):
        set_window(model, window)
        yield target.at(window)


def describe(model: "PreTrainedModel", mask: HeadMask | None) -> dict[str, Any]:
    """What a model is, as plain data; what only a hybrid has is None elsewhere. Its reach is how many tokens back its
    layers see even if all their heads slide, hopping from layer to layer.

    Args:
        model: as it runs.
        mask: that it runs under where it is not deployed as a hybrid.
    """
    if isinstance(model, BoschMixin):
        mask = mask_of(model.config)
    return {
        "class": type(model).__name__,
        "model_hash": model_hash(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "ratio": mask and round(mask.ratio, 4),
        "window": mask and mask.shown_window,
        "sinks": mask and mask.sinks,
        "reach": mask and mask.reach,
        "positions": num_positions(model.config),
    }


def _put_masks(target: Target, settings: EvalSettings) -> Iterator[Target]:
    if not isinstance(target.source, str):
        raise BoschError(f"{target.name} has a mask already; expected the original model beside --mask")
    for name, mask in name_masks(load_masks([Path(mask) for mask in settings.mask])).items():
        source = Recipe(target.source, mask, {})
        yield Target(name if name != target.name else f"{name} (mask)", source)


def _short_names(targets: Sequence[str]) -> list[str]:
    """The last part of a directory's path where that tells it from the others; all else as it was given."""
    short = [target if target in MODELS else Path(target).name or target for target in targets]
    count = collections.Counter(short)
    return [name if count[name] == 1 else target for name, target in zip(short, targets, strict=True)]

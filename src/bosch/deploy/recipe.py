"""What a hybrid is made of, a model and a mask, from a search's directory or named one by one; and the hybrid."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.common.provenance import model_hash
from bosch.deploy.hybridize import hybridize
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.runs import RunDirectory, is_run, load_mask, read_scores

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model and a mask for it. Nothing in it grants trust: it may have been read from files of others.

    Args:
        model: a name of `bosch.models.packaged.MODELS`, a directory, or a hub id.
        mask: which heads slide.
        provenance: what the mask's file says of where it came from; may be empty.
        scores: the rows of a run's `scores.json`; empty where there are none.
        model_hash: of the model that was searched; None where any model of the mask's layout will do.
        yarn: the factor by which the searched model's positions were extended; None = not at all.
    """

    model: str
    mask: HeadMask
    provenance: Mapping[str, Any]
    scores: tuple[Mapping[str, Any], ...] = ()
    model_hash: str | None = None
    yarn: float | None = None


def read_target(target: str) -> Recipe | str:
    """The recipe in the directory of a search; anything else is the name of a model, which `load_model` judges.

    Raises:
        BoschError: a search in that directory has not come to a mask yet.
    """
    return read_run(Path(target)) if is_run(Path(target)) else target


def read_run(path: Path) -> Recipe:
    """The recipe that a search left in its directory.

    Raises:
        BoschError: the directory is no run, or its search has not come to a mask yet.
    """
    run = RunDirectory(path)
    if not is_run(path):
        raise BoschError(f"{path} is not the directory of a search: it has no run.json")
    if not run.mask.is_file():
        raise BoschError(
            f"the search in {path} has no mask yet; run its command again, it goes on where it was stopped"
        )
    settings, found = run.read_settings(), load_mask(path)
    if not isinstance(settings.get("model"), str):
        raise BoschError(f"{run.settings} names no model; expected the settings of a search")
    yarn = settings.get("yarn")
    return Recipe(
        settings["model"],
        found.mask,
        found.provenance,
        read_scores(run),
        found.model_hash,
        yarn if type(yarn) in (int, float) else None,
    )


def read_mask(model: str, path: Path) -> Recipe:
    """The recipe of any model and a mask file; the mask may have been found on another model of the same layout.

    Raises:
        BoschError: the file is no mask.
    """
    found = load_mask(path)
    return Recipe(model, found.mask, found.provenance)


def load_original(
    recipe: Recipe, *, dtype: str, device: str, trust_remote_code: bool, yarn: float | None = None
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """The model that a hybrid is to be made of, and its tokenizer.

    Args:
        recipe: names the model.
        dtype, device, trust_remote_code: as for `load_model`.
        yarn: extend the positions by another factor than in the search.

    Raises:
        BoschError: it cannot be loaded, or is not the model that was searched.
    """

    def load(dtype: str, yarn: float | None = recipe.yarn) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
        return load_model(recipe.model, dtype=dtype, device=device, trust_remote_code=trust_remote_code, yarn=yarn)

    model, tokenizer = load(dtype)
    if recipe.model_hash is not None:
        searched_in = str(recipe.provenance.get("dtype")).removeprefix("torch.")
        # The hash is over values, so it only says something in the dtype that the search ran in.
        same = model if str(model.dtype) == f"torch.{searched_in}" else load(searched_in)[0]
        if model_hash(same) != recipe.model_hash:
            raise BoschError(
                f"{recipe.model} is not the model that was searched: its weights or its config have changed since; "
                "expected the same ones, or --model and --mask to put the mask on another checkpoint"
            )
    if yarn in (None, recipe.yarn):
        return model, tokenizer
    del model
    return load(dtype, yarn)


def open_target(
    target: Recipe | str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    yarn: float | None = None,
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A live model, with its small cache where it is a hybrid, and its tokenizer.

    Args:
        target: from `read_target`, or any recipe.
        dtype, device, trust_remote_code: as for `load_model`.
        yarn: as for `load_model`; None = as the checkpoint or the search has it.

    Raises:
        BoschError: it cannot be loaded, is not the model that was searched, or the mask is not for it.
    """
    if isinstance(target, str):
        return load_model(target, dtype=dtype, device=device, trust_remote_code=trust_remote_code, yarn=yarn)
    model, tokenizer = load_original(target, dtype=dtype, device=device, trust_remote_code=trust_remote_code, yarn=yarn)
    return hybridize(model, target.mask), tokenizer

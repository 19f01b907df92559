"""What a hybrid is made of: a model and a mask, from a search's run directory or named one by one."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.errors import BoschError
from bosch.files import read_json
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.provenance import model_hash
from bosch.search.directory import RunDirectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model and a mask for it.

    Args:
        model: a name of `bosch.packaged.MODELS`, a directory, or a hub id.
        mask: which heads slide.
        provenance: what the mask's file says of where it came from; may be empty.
        scores: the rows of a run's `scores.json`; empty where there are none.
        model_hash: of the model that was searched; None where any model of the mask's layout will do.
        trust_remote_code: let the checkpoint bring Python code of its own.
        yarn: the factor by which the searched model's positions were extended; None = not at all.
    """

    model: str
    mask: HeadMask
    provenance: Mapping[str, Any]
    scores: tuple[Mapping[str, Any], ...] = ()
    model_hash: str | None = None
    trust_remote_code: bool = False
    yarn: float | None = None


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
    settings = _read(run.settings).get("settings")
    if not isinstance(settings, dict) or not isinstance(settings.get("model"), str):
        raise BoschError(f"{run.settings} is not the settings of a run; expected schema {run.schema!r} and a model")
    provenance = _provenance(run.mask)
    return Recipe(
        settings["model"],
        HeadMask.load(run.mask),
        provenance,
        tuple(_read(run.scores)["rows"]) if run.scores.is_file() else (),
        provenance.get("model_hash"),
        settings.get("trust_remote_code") is True,
        yarn if type(yarn := settings.get("yarn")) in (int, float) else None,
    )


def read_mask(model: str, path: Path) -> Recipe:
    """The recipe of any model and a mask file; the mask may have been found on another model of the same layout.

    Raises:
        BoschError: the file is no mask.
    """
    return Recipe(model, HeadMask.load(path), _provenance(path))


def is_run(path: Path) -> bool:
    """Whether a search works or worked in this directory."""
    return RunDirectory(path).settings.is_file()


def load_original(
    recipe: Recipe, *, dtype: str, device: str, yarn: float | None = None
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """The model that a hybrid is to be made of, and its tokenizer; arguments as for `load_model`.

    Args:
        recipe: names the model.
        dtype, device: as for `load_model`.
        yarn: extend the positions by another factor than in the search.

    Raises:
        BoschError: it cannot be loaded, or is not the model that was searched.
    """
    model, tokenizer = _load(recipe, dtype, device)
    if recipe.model_hash is not None:
        searched_in = str(recipe.provenance.get("dtype")).removeprefix("torch.")
        # The hash is over values, so it only says something in the dtype that the search ran in.
        same = model if str(model.dtype) == f"torch.{searched_in}" else _load(recipe, searched_in, device)[0]
        if model_hash(same) != recipe.model_hash:
            raise BoschError(
                f"{recipe.model} is not the model that was searched: its weights or its config have changed since; "
                "expected the same ones, or --model and --mask to put the mask on another checkpoint"
            )
    if yarn in (None, recipe.yarn):
        return model, tokenizer
    del model
    return _load(dataclasses.replace(recipe, yarn=yarn), dtype, device)


def _load(recipe: Recipe, dtype: str, device: str) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    trusts = recipe.trust_remote_code
    return load_model(recipe.model, dtype=dtype, device=device, trust_remote_code=trusts, yarn=recipe.yarn)


def _provenance(path: Path) -> dict[str, Any]:
    found = _read(path).get("provenance")
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path)
    except BoschError as error:
        raise BoschError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise BoschError(f"{path} holds a {type(data).__name__}; expected an object")
    return data

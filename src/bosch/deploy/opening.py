"""What is run, by what the user named: the hybrid of a search or of an export, or any model."""

from pathlib import Path
from typing import TYPE_CHECKING

from bosch.deploy.hybridize import hybridize
from bosch.deploy.recipe import Recipe, is_run, load_original, read_run
from bosch.models import load_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def read_target(target: str) -> Recipe | str:
    """The recipe in the directory of a search; anything else is the name of a model, which `load_model` judges.

    Raises:
        BoschError: a search in that directory has not come to a mask yet.
    """
    return read_run(Path(target)) if is_run(Path(target)) else target


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
        dtype, device: as for `load_model`.
        trust_remote_code: let a checkpoint that is named bring Python code of its own; a recipe says so itself.
        yarn: as for `load_model`; None = as the checkpoint or the search has it.

    Raises:
        BoschError: it cannot be loaded, is not the model that was searched, or the mask is not for it.
    """
    if isinstance(target, str):
        return load_model(target, dtype=dtype, device=device, trust_remote_code=trust_remote_code, yarn=yarn)
    model, tokenizer = load_original(target, dtype=dtype, device=device, yarn=yarn)
    return hybridize(model, target.mask), tokenizer

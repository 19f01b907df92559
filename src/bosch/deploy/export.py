"""A hybrid as a checkpoint directory that any tool of the ecosystem loads; written whole, or not at all."""

import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from bosch.common.files import read_json, write_text
from bosch.common.options import check_yarn
from bosch.common.output import make_directory
from bosch.common.provenance import provenance
from bosch.deploy import modeling_bosch
from bosch.deploy.card import model_card
from bosch.deploy.hybridize import base_class, hybridize, mask_of
from bosch.deploy.recipe import Recipe, load_original
from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from bosch.deploy.modeling_bosch import BoschMixin


def export(
    recipe: Recipe,
    output: Path,
    *,
    overwrite: bool = False,
    max_shard_size: str = "5GB",
    yarn: float | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Make a hybrid and write it, in the dtype of the original checkpoint.

    Args:
        recipe: model and mask.
        output: the directory to make.
        overwrite: replace an exported directory that is there; anything else is refused even so.
        max_shard_size: of one safetensors file, such as "5GB" or "500MB".
        yarn: the factor by which positions are extended in the config; None = as in the search.
        trust_remote_code: let the original checkpoint bring Python code of its own.

    Raises:
        BoschError: the output is taken or cannot be written, the model cannot be loaded, or the mask is not for it.
            The output is then as it was.
    """
    check_options(max_shard_size, yarn)
    _check_output(output, overwrite)
    model, tokenizer = load_original(
        recipe, dtype="checkpoint", device="cpu", yarn=yarn, trust_remote_code=trust_remote_code
    )
    hybrid = hybridize(model, recipe.mask)
    with _replacing(output) as directory:
        write_files(hybrid, tokenizer, recipe, directory, max_shard_size=max_shard_size)


def export_hybrid(
    hybrid: "BoschMixin",
    tokenizer: "PreTrainedTokenizerBase",
    output: Path,
    *,
    overwrite: bool = False,
    max_shard_size: str = "5GB",
) -> None:
    """Write a live hybrid, in the dtype that it has; arguments and errors as for `export`."""
    check_options(max_shard_size, None)
    _check_output(output, overwrite)
    if not isinstance(hybrid, modeling_bosch.BoschMixin):
        raise BoschError(f"{type(hybrid).__name__} is no hybrid; expected what hybridize() gave")
    name = str(hybrid.name_or_path or base_class(hybrid).__name__)
    recipe = Recipe(name, mask_of(hybrid.config), {"model": name, **provenance()})
    with _replacing(output) as directory:
        write_files(hybrid, tokenizer, recipe, directory, max_shard_size=max_shard_size)


def check_options(max_shard_size: str, yarn: float | None) -> None:
    """Refuse what no export can be made with.

    Raises:
        BoschError: with the value.
    """
    if not isinstance(max_shard_size, str) or not re.fullmatch(r"[1-9]\d*[KMG]B", max_shard_size):
        raise BoschError(f"max_shard_size must be a number and KB, MB or GB, got {max_shard_size!r}")
    check_yarn(yarn)


def write_files(
    model: "BoschMixin",
    tokenizer: "PreTrainedTokenizerBase",
    recipe: Recipe,
    directory: Path,
    *,
    training: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write all files of an exported hybrid into a directory.

    Args:
        model: the hybrid.
        tokenizer: the model's.
        recipe: what it was made of.
        directory: that is there.
        training: the settings it was trained with, as plain data; None where its weights are the original's.
        options: of `save_pretrained`.
    """
    write_text(directory / "README.md", model_card(recipe, model, training))
    recipe.mask.save(directory / "mask.json", recipe.provenance)
    tokenizer.save_pretrained(directory)
    # The weights come last: without them, what a killed process leaves under its temporary name does not load.
    model.save_pretrained(directory, **options)


def _check_output(output: Path, overwrite: bool) -> None:
    try:
        if output.exists() and not output.is_dir():
            raise BoschError(f"{output} is a file; expected a directory to make")
        if not output.is_dir() or not any(output.iterdir()):
            return
    except OSError as error:
        raise BoschError(f"cannot read {output}: {error.strerror or error}") from None
    if not _is_export(output):
        raise BoschError(f"{output} is not empty and no exported model; choose another directory")
    if not overwrite:
        raise BoschError(f"{output} holds an exported model; choose another directory or --overwrite")


def _is_export(path: Path) -> bool:
    try:
        config = read_json(path / "config.json")
    except BoschError:
        return False
    return isinstance(config, dict) and str(config.get("model_type")).startswith("bosch_")


@contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """A directory beside the output that takes its place when the block is left well, and else disappears."""
    output = output.absolute()
    temporary, old = (output.with_name(f".{output.name}.{uuid.uuid4().hex}") for _ in range(2))
    try:
        make_directory(temporary)
        yield temporary
        if output.is_dir():
            output.rename(old)
        temporary.rename(output)
    except (OSError, SafetensorError) as error:  # safetensors wraps a full disk in its own error
        raise BoschError(f"cannot write {output}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.is_dir() and not output.exists():
            old.rename(output)
        shutil.rmtree(old, ignore_errors=True)

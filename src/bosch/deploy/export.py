"""A hybrid as a checkpoint directory that any tool of the ecosystem loads; written whole, or not at all."""

import glob
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from bosch.common.files import read_json, read_text, write_text
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
    with _taking(output, overwrite) as directory:
        model, tokenizer = load_original(
            recipe, dtype="checkpoint", device="cpu", yarn=yarn, trust_remote_code=trust_remote_code
        )
        hybrid = hybridize(model, recipe.mask)
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
    if not isinstance(hybrid, modeling_bosch.BoschMixin):
        raise BoschError(f"{type(hybrid).__name__} is no hybrid; expected what hybridize() gave")
    name = str(hybrid.name_or_path or base_class(hybrid).__name__)
    recipe = Recipe(name, mask_of(hybrid.config), {"model": name, **provenance()})
    with _taking(output, overwrite) as directory:
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

    Raises:
        BoschError, OSError: a file cannot be written.
    """
    drop_unused_sampling(model)
    write_text(directory / "README.md", model_card(recipe, model, training))
    recipe.mask.save(directory / "mask.json", recipe.provenance)
    try:
        tokenizer.save_pretrained(directory)
        # The weights come last: without them, what a killed process leaves under its temporary name does not load.
        model.save_pretrained(directory, **options)
    except OSError:
        raise
    except Exception as error:  # tokenizers and safetensors wrap a full disk in errors of their own
        raise OSError(str(error)) from error


def drop_unused_sampling(model: "BoschMixin") -> None:
    """Let a generation config that samples nothing say nothing of sampling, which transformers would refuse to save.

    Args:
        model: whose generation config is changed; what is dropped is said on stderr.
    """
    config: Any = model.generation_config
    if config is None or config.do_sample:
        return
    plain = type(config)()
    dropped = [name for name in SAMPLING if getattr(config, name, None) != getattr(plain, name, None)]
    for name in dropped:
        setattr(config, name, getattr(plain, name))
    if dropped:
        print(f"bosch: the generation config samples nothing, so its {', '.join(dropped)} is left out", file=sys.stderr)


SAMPLING = ("temperature", "top_p", "top_k", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")


def _check_output(output: Path, overwrite: bool) -> None:
    try:
        if output.exists() and not output.is_dir():
            raise BoschError(f"{output} is a file; expected a directory to make")
        if not output.is_dir() or not _entries(output):
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


def _entries(output: Path) -> list[Path]:
    """What is in a directory, but for what exports leave there on their way."""
    return [path for path in output.iterdir() if not path.name.startswith((PARTIAL, LEAVING, REPLACED))]


PARTIAL, LEAVING, REPLACED = ".bosch-partial-", ".bosch-leaving-", ".bosch-replaced-"
"""How directories begin that an export makes on its way: the new files; the old ones while they move there; all of the
old ones, while the new ones move in."""

OF_EXPORTS = (
    *("*.safetensors", "*.json", "*.py", "*.jinja", "*.model"),
    *("README.md", "merges.txt", "vocab.txt", "additional_chat_templates"),
)
"""What models and tokenizers are saved as: it is replaced. Other files in the directory stay."""

NEW_NAMES = ".bosch-new-names"
"""Lies among the old files: the names of the new ones, a line each."""


@contextmanager
def _taking(output: Path, overwrite: bool) -> Iterator[Path]:
    """A directory to write into, whose files become those of the output when the block is left well; otherwise the
    output is as it was. It is one path from here on, links followed; a directory that is there stays the same one, so
    that it may be a mount point, or somebody may stand in it.

    Raises:
        BoschError: the output is taken, or something cannot be written.
    """
    output = Path(os.path.realpath(output))
    _clean(output)
    _check_output(output, overwrite)
    inside, name = output.is_dir(), uuid.uuid4().hex
    partial = output / f"{PARTIAL}{name}" if inside else output.with_name(f"{PARTIAL}{output.name}-{name}")
    try:
        make_directory(partial)
        with FileLock(f"{partial}.lock", timeout=0):
            yield partial
            _check_output(output, overwrite)  # again: another command may have been quicker
            if inside:
                _exchange(output, partial)
            else:
                partial.rename(output)
    except OSError as error:
        raise BoschError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            Path(f"{partial}.lock").unlink(missing_ok=True)


def _exchange(output: Path, partial: Path) -> None:
    """Let new files take the place of those of a directory; should one not move, all are back where they were."""
    leaving, replaced = (partial.with_name(partial.name.replace(PARTIAL, name, 1)) for name in (LEAVING, REPLACED))
    new = {path.name for path in partial.iterdir()}
    old = [path for path in _entries(output) if path.name in new or any(map(path.match, OF_EXPORTS))]
    try:
        leaving.mkdir()
        write_text(leaving / NEW_NAMES, "\n".join(new))
        for path in old:
            path.rename(leaving / path.name)
        leaving.rename(replaced)
        for name in sorted(new, key=lambda name: name == "config.json"):  # without it, nothing takes it for a model
            (partial / name).rename(output / name)
        replaced.rename(partial / REPLACED)
    except BaseException:
        _put_back(output)
        raise


def _put_back(output: Path) -> None:
    """Undo an exchange that was stopped at any moment. What lies there may have been made by somebody else: nothing
    outside the directory is touched."""
    for replaced in _directories(output, REPLACED):
        if not (replaced / NEW_NAMES).is_file():
            continue
        for name in read_text(replaced / NEW_NAMES, "the names of an export").splitlines():
            path = output / name
            if name in ("", ".", "..") or path.parent != output:
                continue
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        replaced.rename(replaced.with_name(replaced.name.replace(REPLACED, LEAVING, 1)))
    for leaving in _directories(output, LEAVING):
        for path in leaving.iterdir():
            if path.name != NEW_NAMES:
                path.rename(output / path.name)
        shutil.rmtree(leaving)


def _directories(output: Path, beginning: str) -> list[Path]:
    """Those of such names that an export may have made: it makes no links."""
    return [path for path in output.glob(f"{beginning}*") if not path.is_symlink()]


def _clean(output: Path) -> None:
    """Remove what exports to this place have left that were killed.

    Raises:
        BoschError: one is at work; it holds its lock.
    """
    beside, random = f"{PARTIAL}{glob.escape(output.name)}-", "?" * 32
    found = [
        *(path for ending in ("", ".lock") for path in output.parent.glob(f"{beside}{random}{ending}")),
        *output.glob(f"{PARTIAL}*"),
    ]
    for partial in {path.with_name(path.name.removesuffix(".lock")) for path in found}:
        lock = FileLock(f"{partial}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise BoschError(f"{output} is in use by another running command; expected one at a time") from None
        except OSError:  # what may not be removed stays; the output is refused where it cannot be written itself
            continue
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)
    _put_back(output)

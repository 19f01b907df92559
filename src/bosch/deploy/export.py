"""A hybrid as a checkpoint directory that any tool of the ecosystem loads; written whole, or not at all."""

import contextlib
import glob
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

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
        BoschError: a file cannot be written.
    """
    drop_unused_sampling(model)
    write_text(directory / "README.md", model_card(recipe, model, training))
    recipe.mask.save(directory / "mask.json", recipe.provenance)
    try:
        tokenizer.save_pretrained(directory)
        # The weights come last: without them, what a killed process leaves under its temporary name does not load.
        model.save_pretrained(directory, **options)
    except Exception as error:  # tokenizers and safetensors wrap a full disk in errors of their own
        raise BoschError(f"cannot write the model to {directory}: {error}") from error


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
    return [path for path in output.iterdir() if not path.name.startswith((PARTIAL, OLD))]


PARTIAL, OLD = ".bosch-partial-", ".bosch-old-"
"""How directories begin that an export makes on its way."""


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
            if inside:
                _exchange(output, partial, output / f"{OLD}{name}")
            else:
                partial.rename(output)
    except OSError as error:
        raise BoschError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        Path(f"{partial}.lock").unlink(missing_ok=True)


def _exchange(output: Path, partial: Path, old: Path) -> None:
    """Let new files take the place of those of a directory; should one not move, all are back where they were."""
    old.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for source, folder in [
            *((path, old) for path in _entries(output)),
            # The config comes last: without it, nothing takes the directory for a model.
            *((path, output) for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json")),
        ]:
            source.rename(folder / source.name)
            moved.append((folder / source.name, source))
    except BaseException:
        for there, back in reversed(moved):
            there.rename(back)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _clean(output: Path) -> None:
    """Remove what exports to this place have left that were killed. One that is at work holds its lock."""
    folders = [output.parent.glob(f"{PARTIAL}{glob.escape(output.name)}-*"), output.glob(f"{PARTIAL}*")]
    for partial in (path for found in folders for path in found if path.is_dir()):
        lock = FileLock(f"{partial}.lock")
        with contextlib.suppress(Timeout, OSError):
            lock.acquire(timeout=0)
            shutil.rmtree(partial, ignore_errors=True)
            lock.release()
            Path(lock.lock_file).unlink(missing_ok=True)
    for old in output.glob(f"{OLD}*"):  # killed between two renames: what is there is incomplete, the old files are not
        for path in _entries(output):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in old.iterdir():
            path.rename(output / path.name)
        old.rmdir()

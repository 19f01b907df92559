"""Masks as a user names them: files of masks, or directories of searches; each with a short name to be shown by."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bosch.errors import BoschError
from bosch.files import read_json
from bosch.heads import HeadMask
from bosch.search import RunDirectory

LONGEST_NAME = 80


@dataclasses.dataclass(frozen=True)
class MaskFile:
    """A mask that was read, and what its file says about where it came from.

    Args:
        path: as the user gave it.
        mask: what was read.
        method: the method that chose it; None where the file does not say.
        model: the model it was made for, a directory by its last part; None where the file does not say.
        model_hash: of the model's weights; None where the file does not say.
    """

    path: Path
    mask: HeadMask
    method: str | None
    model: str | None
    model_hash: str | None

    @property
    def stem(self) -> str:
        """Name of the search's directory, or of the file without its ending."""
        return self.path.resolve().name if self.path.is_dir() else self.path.stem


def load_mask(path: Path) -> MaskFile:
    """Read a mask file, or the mask of a search's directory, as data.

    Raises:
        BoschError: it cannot be read or is no mask; the path is named.
    """
    file = RunDirectory(path).mask if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise BoschError(f"{path} holds no {file.name}; expected a mask file or the directory of a finished search")
    try:
        data = read_json(file)
        mask = HeadMask.from_json(data)
        if not mask.layout.num_units:
            raise BoschError("the mask has no units; expected at least one")
    except BoschError as error:
        raise BoschError(f"{file}: {error}") from None
    origin = _object(data.get("provenance"))
    method = _name(origin.get("method")) or _name(_object(origin.get("settings")).get("method"))
    return MaskFile(path, mask, method, _name(_last_part(origin.get("model"))), _name(origin.get("model_hash")))


def load_masks(paths: Sequence[Path]) -> tuple[MaskFile, ...]:
    """Read masks of one layout.

    Raises:
        BoschError: one is refused by `load_mask`, or two are of different layouts; both are named.
    """
    files = tuple(load_mask(path) for path in paths)
    for file in files:
        if file.mask.layout != files[0].mask.layout:
            raise BoschError(
                f"masks of different models cannot be compared: {files[0].path} is for {files[0].mask.layout}, "
                f"{file.path} for {file.mask.layout}"
            )
    return files


def name_masks(files: Iterable[MaskFile]) -> dict[str, HeadMask]:
    """Masks by the shortest name that tells them apart: the method, else the stem, else the whole path.

    Raises:
        BoschError: the same path is given twice.
    """
    files = tuple(files)
    names = [file.method or file.stem for file in files]
    for longer in ([file.stem for file in files], [str(file.path) for file in files]):
        count = collections.Counter(names)
        names = [long if count[name] > 1 else name for name, long in zip(names, longer, strict=True)]
    for name, times in collections.Counter(names).items():
        if times > 1:
            raise BoschError(f"{name} is given {times} times; expected different masks")
    return {name: file.mask for name, file in zip(names, files, strict=True)}


def by_ratio(files: Iterable[MaskFile]) -> tuple[tuple[MaskFile, ...], ...]:
    """Masks of one layout, grouped by the number of units that slide, fewest first."""

    def size(file: MaskFile) -> int:
        return file.mask.num_localized

    return tuple(tuple(group) for _, group in itertools.groupby(sorted(files, key=size), key=size))


def model_name(files: Sequence[MaskFile]) -> str:
    """The model that all these masks were made for; its layout where they do not say one."""
    models = {file.model for file in files}
    return (models.pop() if len(models) == 1 else None) or str(files[0].mask.layout)


def _last_part(model: Any) -> Any:
    return model.rstrip("/").rpartition("/")[2] if isinstance(model, str) else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str | None:
    """What can be shown on one line: a file from others may hold anything."""
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME else None

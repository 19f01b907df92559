"""Finished searches, read as data: their directories may come from somebody else."""

import typing
from pathlib import Path
from typing import Any

from bosch.analysis.masks import MaskFile, load_mask
from bosch.errors import BoschError
from bosch.experiment.settings import ExperimentSettings
from bosch.files import read_json
from bosch.search import RunDirectory

LATER = {"yarn"}
"""Settings that searches of earlier versions do not have; their default is what those did."""


def load_pair(smaller: Path, larger: Path) -> tuple[MaskFile, MaskFile]:
    """The masks of two searches of one model.

    Raises:
        BoschError: one is no finished search, or they are of different models.
    """
    for path in (smaller, larger):
        if not path.is_dir():
            raise BoschError(f"{path} is not a directory; expected that of a finished search")
    small, large = load_mask(smaller), load_mask(larger)
    for file in (small, large):
        if file.model_hash is None:
            raise BoschError(f"{file.path} does not say which model its mask is for; expected a finished search")
    if small.model_hash != large.model_hash:
        raise BoschError(
            f"{smaller} and {larger} searched different models, or one model in two dtypes: {small.model} "
            f"({str(small.model_hash)[:12]}) and {large.model} ({str(large.model_hash)[:12]})"
        )
    return small, large


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a search that say how masks are scored, as data.

    Raises:
        BoschError: there are none, or one has a wrong type.
    """
    file = RunDirectory(path).settings
    try:
        data = read_json(file)
    except BoschError as error:
        raise BoschError(f"{file}: {error}") from None
    found = data.get("settings") if isinstance(data, dict) and data.get("schema") == RunDirectory.schema else None
    if not isinstance(found, dict):
        raise BoschError(f"{file} is not the settings of a search; expected the schema {RunDirectory.schema!r}")
    settings = {}
    for name, kind in typing.get_type_hints(ExperimentSettings).items():
        if name in LATER and name not in found:
            continue
        if name not in found or not _is_a(kind, found[name]):
            raise BoschError(f"{file}: its {name} is {found.get(name)!r}; expected {_in_words(kind)}")
        settings[name] = tuple(found[name]) if isinstance(found[name], list) else found[name]
    return settings


def _is_a(kind: Any, value: Any) -> bool:
    """Whether JSON data can be a field of that type."""
    if typing.get_origin(kind) is tuple:
        return isinstance(value, list) and all(type(item) is typing.get_args(kind)[0] for item in value)
    kinds = typing.get_args(kind) or (kind,)
    return type(value) in kinds or (float in kinds and type(value) is int)


def _in_words(kind: Any) -> str:
    return str(kind) if typing.get_args(kind) else kind.__name__

"""What a command is asked to do: frozen dataclasses whose fields carry their own help, and the checks that they share.

The options of the command line and the keywords of the Python functions are both made from these fields.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from bosch.common.files import read_text
from bosch.common.lookup import lookup
from bosch.errors import BoschError

S = TypeVar("S")

MODEL = "NAME|DIR|HUB_ID"
YARN_HELP = "extend the model's positions so many times by YaRN, such as 2.0"
TRUST_HELP = "let the checkpoint run Python code of its own"
DTYPE_HELP = "float32, bfloat16, or auto: bfloat16 where the hardware multiplies it fast"
DEVICE_HELP = "a torch device, or auto: the GPU if there is one"


def option(help: str, default: Any = dataclasses.MISSING, *, group: str = "options", metavar: str | None = None) -> Any:
    """A field of settings.

    Args:
        help: what the command line shows.
        default: of the field; None or () where it may be left out and nothing stands for it.
        group: the heading under which the command line lists it.
        metavar: what the option holds, such as `NAME|DIR|HUB_ID`; by default its type.
    """
    return dataclasses.field(default=default, metadata={"help": help, "group": group, "metavar": metavar})


def make_settings(kind: type[S], given: Mapping[str, Any]) -> S:
    """Settings from named values, as Python code or a JSON file gives them: a list stands for a tuple, and a single
    value for a tuple of one.

    Raises:
        BoschError: a name is none of the fields, one that is needed is missing, or a value is of a wrong type or out of
            range.
    """
    kinds = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in given:
        lookup("option", name, fields)
    for name, field in fields.items():
        if name not in given and field.default is dataclasses.MISSING:
            raise BoschError(f"the option {name} is missing: {field.metadata['help']}")
    return kind(**{name: convert(name, kinds[name], value) for name, value in given.items()})


def convert(name: str, kind: Any, value: Any) -> Any:
    """A value as a field of that type holds it.

    Raises:
        BoschError: it is of another type; with the name, the value and what is right.
    """
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        several = value if isinstance(value, list | tuple) else (value,)
        return tuple(convert(name, arguments[0], one) for one in several)
    kinds = arguments if isinstance(kind, types.UnionType) else (kind,)
    if isinstance(value, Path) and str in kinds:
        return str(value)
    if type(value) in kinds or (value is None and type(None) in kinds) or (type(value) is int and float in kinds):
        return value
    words = " or ".join({int: "an integer", float: "a number", str: "a text", bool: "true or false"}.get(one, "None")
                        for one in kinds)  # fmt: skip
    raise BoschError(f"{name} must be {words}, got {value!r:.80}")


def check_integer(name: str, value: Any, least: int) -> None:
    """Refuse what is not an integer of at least so much, or what 64 bits cannot hold.

    Raises:
        BoschError: with the name and the value.
    """
    if type(value) is not int or value < least:
        raise BoschError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value >= 2**63:
        raise BoschError(f"{name} must be an integer below 2^63, got {value!r:.80}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is not a finite number above 0.

    Raises:
        BoschError: with the name and the value.
    """
    if type(value) not in (int, float) or not (math.isfinite(value) and value > 0):
        raise BoschError(f"{name} must be a positive number, got {value!r}")


def check_yarn(factor: Any) -> None:
    """Refuse what is no factor of YaRN's; None, for none, is fine.

    Raises:
        BoschError: with the value.
    """
    if factor is not None and not (type(factor) in (int, float) and math.isfinite(factor) and factor > 1):
        raise BoschError(f"the factor of YaRN must be a number above 1, got {factor!r}")


def read_haystack(path: str | None) -> str | None:
    """Content of a haystack file; None, which is the shipped text, for None.

    Raises:
        BoschError: it cannot be read or is not UTF-8.
    """
    return None if path is None else read_text(Path(path), "the haystack")

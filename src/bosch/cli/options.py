"""Options made from the fields of settings, and settings made from what was given."""

import argparse
import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S")


def add_settings(parser: argparse.ArgumentParser, settings: type[Any]) -> None:
    """One option for each field of a dataclass of settings, those that must be given first, and where the results go.
    Fields without a help are no options.

    An optional value has the default None or (), of which nothing is shown.
    """
    kinds = typing.get_type_hints(settings)
    fields = [field for field in dataclasses.fields(settings) if "help" in field.metadata]
    for field in sorted(fields, key=lambda field: field.default is not dataclasses.MISSING):
        name, help_text = f"--{field.name.replace('_', '-')}", field.metadata["help"]
        if kinds[field.name] is bool:
            parser.add_argument(name, action="store_true", default=argparse.SUPPRESS, help=help_text)
            continue
        required = field.default is dataclasses.MISSING
        shown = "" if required or field.default in (None, ()) else f" (default: {_show(field.default)})"
        parser.add_argument(
            name,
            required=required,
            default=argparse.SUPPRESS,
            type=_parser_of(kinds[field.name]),
            metavar=field.name.upper(),
            help=help_text + shown,
        )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the directory of the results")
    parser.add_argument("--overwrite", action="store_true", help="replace other results in that directory")


def given_settings(arguments: argparse.Namespace, settings: type[S]) -> S:
    """The settings that the options say.

    Raises:
        BoschError: a value out of range.
    """
    names = typing.get_type_hints(settings).keys() & vars(arguments).keys()
    return settings(**{name: getattr(arguments, name) for name in names})


def _parser_of(kind: type) -> Callable[[str], object]:
    inner = next((part for part in typing.get_args(kind) if part is not type(None) and part is not Ellipsis), kind)
    if typing.get_origin(kind) is not tuple:
        return inner

    def split(text: str) -> tuple[object, ...]:
        return tuple(inner(part) for part in text.split(",") if part)

    split.__name__ = f"comma-separated {inner.__name__}"
    return split


def _show(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)

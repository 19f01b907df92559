"""A subcommand, its options made from the fields of settings, and argparse with a did-you-mean."""

import argparse
import dataclasses
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from bosch.common.files import to_path
from bosch.common.lookup import lookup
from bosch.errors import BoschError


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand, in a file of its own. `run` does the heavy imports, so that `--help` stays quick.

    Args:
        name: what the user types after `bosch`.
        help: one line that says what it does.
        examples: lines to try, shown at the end of `--help`.
        add_arguments: declares the options.
        run: does the work; a `BoschError` becomes one line and exit status 2.
    """

    name: str
    help: str
    examples: tuple[str, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """An argument parser that names the nearest option or command, and takes no abbreviations.

    Args:
        examples: lines to try, shown at the end of `--help`.
    """

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        title = "examples" if len(examples) > 1 else "example"
        super().__init__(
            **options,
            epilog="\n  ".join([f"{title}:", *examples]) if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Look for misspelt words first: argparse would rather report the option that seems to be missing."""
        for word in args or ():
            if word == "--":
                break
            if word.startswith("--"):
                self._look_up("option", word.partition("=")[0], self._option_string_actions)
            elif self._subparsers is not None:
                break  # the command: from here on its own parser looks
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "command" if isinstance(action, argparse._SubParsersAction) else f"value of {_name(action)}"
            self._look_up(kind, value, dict.fromkeys(action.choices))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type is to_path:  # whose own words argparse would not show
            return to_path(arg_string)
        return super()._get_value(action, arg_string)

    def _look_up(self, kind: str, name: str, known: dict[str, Any]) -> None:
        try:
            lookup(kind, name, known)
        except BoschError as error:
            self.error(str(error))

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the help is."""
        raise BoschError(f"{message} (see {self.prog} --help)")


def add_settings(parser: argparse.ArgumentParser, settings: type[Any], *first: str, groups: Sequence[str] = ()) -> None:
    """One option for each field of a dataclass of settings, in the fields' groups, and where the results go. Fields
    without a help are no options.

    An optional value has the default None or (), of which nothing is shown.

    Args:
        parser: of the command.
        settings: the dataclass.
        first: fields that everyone needs, to be listed before the others of their group.
        groups: the headings in their order; those that are not named follow.
    """
    kinds = typing.get_type_hints(settings)
    fields = [field for field in dataclasses.fields(settings) if "help" in field.metadata]
    fields.sort(key=lambda field: first.index(field.name) if field.name in first else len(first))
    titles = dict.fromkeys([*groups, *(field.metadata["group"] for field in fields)])
    headings = {title: parser.add_argument_group(title) for title in titles}
    for field in fields:
        _add_option(headings[field.metadata["group"]], field, kinds[field.name])
    add_output(parser)


def add_output(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Where the results go, and whether they replace others."""
    group = parser.add_argument_group("results")
    group.add_argument("--output", type=to_path, required=required, metavar="DIR", help="the directory of the results")
    group.add_argument("--overwrite", action="store_true", help="replace other results in that directory")


def _add_option(group: Any, field: Any, kind: Any) -> None:
    name, help_text = f"--{field.name.replace('_', '-')}", field.metadata["help"]
    if kind is bool:
        group.add_argument(name, action="store_true", default=argparse.SUPPRESS, help=help_text)
        return
    is_list = typing.get_origin(kind) is tuple
    inner = next((part for part in typing.get_args(kind) if part is not type(None) and part is not Ellipsis), kind)
    word = {int: "INT", float: "FLOAT", str: "NAME"}[inner]
    required = field.default is dataclasses.MISSING
    shown = "" if required or field.default in (None, ()) else f" (default: {_show(field.default)})"
    group.add_argument(
        name,
        required=required,
        default=argparse.SUPPRESS,
        type=_list_of(inner) if is_list else inner,
        metavar=field.metadata["metavar"] or (f"{word},..." if is_list else word),
        help=help_text + shown,
    )


def given(arguments: argparse.Namespace, settings: type[Any]) -> dict[str, Any]:
    """The options that were given, by the names of the settings' fields, with where the results go."""
    names = {*typing.get_type_hints(settings), "output", "overwrite"}
    return {name: value for name, value in vars(arguments).items() if name in names}


def _list_of(inner: type) -> Callable[[str], object]:
    def split(text: str) -> tuple[object, ...]:
        return tuple(inner(part) for part in text.split(",") if part)

    split.__name__ = f"comma-separated {inner.__name__}"
    return split


def _show(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _name(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.dest)

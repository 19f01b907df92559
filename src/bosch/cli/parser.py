"""argparse with a did-you-mean, and with mistakes as `BoschError`."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from bosch.errors import BoschError
from bosch.registry import lookup


class Parser(argparse.ArgumentParser):
    """An argument parser that names the nearest option or command, and takes no abbreviations.

    Args:
        example: a line to try, shown at the end of `--help`.
    """

    def __init__(self, *, example: str | None = None, **options: Any) -> None:
        super().__init__(
            **options,
            epilog=f"example:\n  {example}" if example else None,
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

    def _look_up(self, kind: str, name: str, known: dict[str, Any]) -> None:
        try:
            lookup(kind, name, known)
        except BoschError as error:
            self.error(str(error))

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the help is."""
        raise BoschError(f"{message} (see {self.prog} --help)")


def _name(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.dest)

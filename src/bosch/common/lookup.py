"""Looking up what a user named: a method, a task, an option, or a library that only some work needs."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from bosch.errors import BoschError

T = TypeVar("T")


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The entry of that name.

    Args:
        kind: what is looked up, in the user's words, such as "task".
        name: what the user wrote.
        known: everything there is.

    Raises:
        BoschError: there is no such entry; the nearest name and all names are given.
    """
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" did you mean {near[0]!r}?" if near else ""
    raise BoschError(f"unknown {kind} {name!r};{hint} known: {', '.join(known)}")


def import_extra(name: str, purpose: str, extra: str) -> Any:
    """A module that an extra of the package brings.

    Args:
        name: of the module.
        purpose: what it is needed for, to begin the message with.
        extra: of `bosch-swa`.

    Raises:
        BoschError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BoschError(
            f"{purpose} needs {name}, which cannot be imported ({error}); expected the extra that brings it: "
            f"pip install 'bosch-swa[{extra}]'"
        ) from error

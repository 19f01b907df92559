"""Looking up what a user named: a method, a task, an optimizer, an objective."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

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
    if name in known:
        return known[name]
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" did you mean {near[0]!r}?" if near else ""
    raise BoschError(f"unknown {kind} {name!r};{hint} known: {', '.join(known)}")

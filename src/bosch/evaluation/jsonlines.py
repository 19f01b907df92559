"""Local data files of one JSON object a line, read as data."""

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bosch.errors import BoschError

T = TypeVar("T")


def read_json_lines(path: Path, parse: Callable[[Any], T], *, origin: str, limit: int | None = None) -> tuple[T, ...]:
    """The objects of a file in order; empty lines are passed over.

    Args:
        path: a UTF-8 file.
        parse: makes a value of one line's data; what it refuses is refused with the line's number.
        origin: where the file is to be had, for those who lack it.
        limit: so many objects from the beginning, at least 1; by default all.

    Raises:
        BoschError: the file is missing, unreadable or empty, a line is not JSON or refused, or the limit is below 1.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BoschError(f"the limit must be an integer of at least 1 example, got {limit!r}")
    try:
        with path.open(encoding="utf-8") as file:
            filled = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            values = tuple(_parse(path, number, line, parse) for number, line in itertools.islice(filled, limit))
    except FileNotFoundError:
        raise BoschError(f"there is no {path}; {origin}") from None
    except OSError as error:
        raise BoschError(f"{path}: cannot read it: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BoschError(f"{path}: not UTF-8 text: {error.reason}") from None
    if not values:
        raise BoschError(f"{path} has no line; expected one JSON object a line")
    return values


def _parse(path: Path, number: int, line: str, parse: Callable[[Any], T]) -> T:
    try:
        return parse(json.loads(line))
    except BoschError as error:
        raise BoschError(f"{path}, line {number}: {error}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of 4301 digits
        raise BoschError(f"{path}, line {number}: not valid JSON: {error}") from None


def take_fields(data: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """The named fields of an object, each of its type; other fields are left where they are.

    Raises:
        BoschError: it is no object, or a field is missing or of another type.
    """
    if not isinstance(data, dict):
        raise BoschError(f"expected an object, found {data!r:.40}")
    if missing := [name for name in kinds if name not in data]:
        raise BoschError(f"it lacks {', '.join(missing)}; expected {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(data[name]) is not kind:
            raise BoschError(f"{name} must be of type {kind.__name__}, found {data[name]!r:.40}")
    return {name: data[name] for name in kinds}

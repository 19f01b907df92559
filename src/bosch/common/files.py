"""Reading files as data, and writing them so that a reader never sees half of one."""

import contextlib
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bosch.errors import BoschError

T = TypeVar("T")

MAX_JSON_BYTES = 64 * 2**20


def to_path(value: Any) -> Path:
    """The path that a user named.

    Raises:
        BoschError: it is neither a text nor a path, or no file can be called so.
    """
    with contextlib.suppress(TypeError, ValueError):
        if b"\0" not in os.fsencode(value):
            return Path(value)
    raise BoschError(f"expected the path of a file or a directory, got {value!r:.80}")


def read_json(path: Path) -> Any:
    """Parse a JSON file of at most 64 MiB; NaN and infinities are refused, as JSON has none.

    Raises:
        BoschError: the file is missing, unreadable, too large, or not JSON; it is named.
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= MAX_JSON_BYTES else b""
    except OSError as error:
        raise BoschError(f"{path}: cannot read it: {error.strerror or error}") from None
    except ValueError as error:  # a name that no file can have
        raise BoschError(f"{str(path)!r}: cannot read it: {error}") from None
    if size > MAX_JSON_BYTES:
        raise BoschError(f"{path}: the file is {size} bytes, expected at most {MAX_JSON_BYTES}")
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: also bytes that are no text, and numbers of 4301 digits
        raise BoschError(f"{path}: not valid JSON: {error}") from None


def read_text(path: Path, called: str) -> str:
    """Content of a UTF-8 text file of the user's.

    Args:
        path: of the file.
        called: what it is to the user, for the message.

    Raises:
        BoschError: it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: bytes that are no text, and names that no file can have
        raise BoschError(f"cannot read {called} {path}: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically: the file is either the old one or the whole new one.

    Raises:
        BoschError: the file cannot be written, or a number is not finite; the path and the reason are named.
    """
    try:
        text = json.dumps(data, indent=1, allow_nan=False)
    except ValueError:
        raise BoschError(
            f"cannot write {path}: a result is NaN or infinite, as where a model's numbers overflow; try another dtype"
        ) from None
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; of a file's name that is no UTF-8, the bytes are spelled out.

    Raises:
        BoschError: the file cannot be written; the path and the reason are named.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, through a temporary file beside it.

    Raises:
        BoschError: the file cannot be written; the path and the reason are named.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise BoschError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


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
            values = tuple(_parse_line(path, number, line, parse) for number, line in itertools.islice(filled, limit))
    except FileNotFoundError:
        raise BoschError(f"there is no {path}; {origin}") from None
    except OSError as error:
        raise BoschError(f"{path}: cannot read it: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BoschError(f"{path}: not UTF-8 text: {error.reason}") from None
    if not values:
        raise BoschError(f"{path} has no line; expected one JSON object a line")
    return values


def _parse_line(path: Path, number: int, line: str, parse: Callable[[Any], T]) -> T:
    data = parse_line(path, number, line)
    try:
        return parse(data)
    except BoschError as error:
        raise BoschError(f"{path}, line {number}: {error}") from None


def parse_line(path: Path, number: int, line: str) -> Any:
    """The JSON of one line of a file.

    Raises:
        BoschError: it is not JSON, is too deep, or holds a number of 4301 digits or half a character.
    """
    try:
        data = json.loads(line)
        if "\\ud" in line.lower():
            json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BoschError(f"{path}, line {number}: not valid JSON: {error}") from None
    return data


def is_text(value: Any) -> bool:
    """Whether a value is text without half a character, of which no tokenizer makes tokens."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def as_written_by(what: str, path: Path) -> Iterator[None]:
    """Take a file's data apart: whatever is missing or of another kind in it makes the file damaged.

    Args:
        what: what writes such a file, with its article.
        path: of the file.

    Raises:
        BoschError: the block met data of another shape, or refused it.
    """
    try:
        yield
    except BoschError as error:
        raise BoschError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BoschError(f"{path} is not what {what} writes: {type(error).__name__}: {error}") from None


Kinds = Mapping[str, type | tuple[type, ...]]
"""Of each field its type, or several."""


def take_fields(data: Any, kinds: Kinds) -> dict[str, Any]:
    """The named fields of an object, each of its type, or of one of several; other fields are left where they are.

    Raises:
        BoschError: it is no object, or a field is missing or of another type.
    """
    if not isinstance(data, dict):
        raise BoschError(f"expected an object, found {data!r:.40}")
    if missing := [name for name in kinds if name not in data]:
        raise BoschError(f"it lacks {', '.join(missing)}; expected {', '.join(kinds)}")
    for name, kind in kinds.items():
        several = kind if isinstance(kind, tuple) else (kind,)
        if type(data[name]) not in several:
            words = " or ".join(one.__name__ for one in several)
            raise BoschError(f"{name} must be of type {words}, found {data[name]!r:.40}")
    return {name: data[name] for name in kinds}

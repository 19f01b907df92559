"""Reading files as data, and writing them so that a reader never sees half of one."""

import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import IO, Any

from bosch.errors import BoschError

MAX_JSON_BYTES = 64 * 2**20


def read_json(path: Path) -> Any:
    """Parse a JSON file of at most 64 MiB; NaN and infinities are refused, as JSON has none.

    Raises:
        BoschError: the file is missing, unreadable, too large, or not JSON.
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= MAX_JSON_BYTES else b""
    except OSError as error:
        raise BoschError(f"cannot read it: {error.strerror or error}") from None
    if size > MAX_JSON_BYTES:
        raise BoschError(f"the file is {size} bytes, expected at most {MAX_JSON_BYTES}")
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: also bytes that are no text, and numbers of 4301 digits
        raise BoschError(f"not valid JSON: {error}") from None


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
    except (OSError, UnicodeDecodeError) as error:
        raise BoschError(f"cannot read {called} {path}: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically: the file is either the old one or the whole new one.

    Raises:
        BoschError: the file cannot be written; the path and the reason are named.
    """
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        BoschError: the file cannot be written; the path and the reason are named.
    """
    write_bytes(path, text.encode())


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


def hold(file: IO[bytes], called: str) -> None:
    """Hold an open file for this process alone, until it is closed.

    Args:
        file: that whoever works in a directory holds.
        called: what works there, for the message.

    Raises:
        BoschError: another process holds it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BoschError(f"{file.name} is in use by another running {called}; expected one a directory") from None


def check_free(path: Path, called: str) -> None:
    """Make sure that no process holds a file, if it is there.

    Raises:
        BoschError: one does.
    """
    if path.is_file():
        with path.open("rb") as file:
            hold(file, called)

"""The memory of a search on disk: one line an evaluation, appended, readable after a kill at any byte.

A line is eight hex digits of CRC-32, a space, and a JSON object. The first line is the header, which says what was
evaluated. A last line without its newline is the trace of a kill and is dropped; any other damage is an error, because
it is not our doing.
"""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bosch.errors import BoschError

JOURNAL_SCHEMA = "bosch.journal/1"


class Journal:
    """An append-only file of evaluations. One process at a time may have it: that of the directory it lies in.

    Args:
        path: the file; made if it does not exist.
        subject: what is evaluated (model, examples, window, ...), as plain data; a journal of another subject is
            refused.

    Raises:
        BoschError: the file cannot be opened or written, is damaged before its last line,
            or belongs to another subject.
    """

    def __init__(self, path: Path, subject: Mapping[str, Any]) -> None:
        self.path = path
        try:
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - held until close()
        except OSError as error:
            raise BoschError(f"cannot write {path}: {error.strerror or error}") from None
        try:
            self.entries = self._read(dict(subject))
        except BaseException:
            self._file.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one evaluation; when this returns, a kill cannot lose it.

        Raises:
            BoschError: the disk refuses the write.
        """
        text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        try:
            written = self._file.write(line)
            if written != len(line):
                self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            raise BoschError(f"cannot write {self.path}: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the file; every line is on disk already."""
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, subject: dict[str, Any]) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        entries = [self._parse(number, line) for number, line in enumerate(content[:whole].splitlines(), start=1)]
        if not entries:
            self.append({"schema": JOURNAL_SCHEMA, "subject": subject})
            return []
        header, *rest = entries
        if header.get("schema") != JOURNAL_SCHEMA:
            raise BoschError(f"{self.path} is not a journal: expected schema {JOURNAL_SCHEMA!r} in its first line")
        found = header.get("subject")
        if not isinstance(found, dict):
            raise BoschError(f"{self.path} is not a journal: its first line does not say what it is of")
        differing = sorted(name for name in found.keys() | subject.keys() if found.get(name) != subject.get(name))
        if differing:
            name = differing[0]
            raise BoschError(
                f"{self.path} was written for another search: its {name} is {found.get(name)!r}, now it is "
                f"{subject.get(name)!r}; choose another output directory"
            )
        return rest

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        checksum, _, text = line.partition(b" ")
        try:
            entry = json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
            if isinstance(entry, dict):
                return entry
        except (ValueError, RecursionError):
            pass
        raise BoschError(
            f"{self.path} is damaged at line {number}; every line stands alone, so delete that line to go on without it"
        )


def read_subject(path: Path) -> dict[str, Any] | None:
    """What a journal is of, as its first line says; None where there is no such line."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline().partition(b" ")[2])
    except (OSError, ValueError, RecursionError):
        return None
    subject = header.get("subject") if isinstance(header, dict) else None
    return subject if isinstance(subject, dict) else None

"""The disk is full at the n-th write of a command: it says so, spoils nothing, and goes on once there is room.

Writes are files that Python opens, directories that are made, and renames. Those that Rust opens for itself, the
tensors of safetensors and `tokenizer.json`, are not seen.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bosch.cli.app import COMMANDS
from bosch.common.output import LOCK
from marks import slow_after
from small_commands import CASES, Case, content, run
from small_search import snapshot

WRITING = (
    *CASES,
    Case("train, followed", f"{CASES[-1].command} --trackers tensorboard",
         f"{CASES[-1].other} --trackers tensorboard"),
    Case("overlap", "analyze overlap {masks}/a.json {masks}/b.json", "analyze overlap {masks}/a.json {masks}/c.json"),
    Case("turnover", "analyze turnover {masks}/a.json {masks}/b.json",
         "analyze turnover {masks}/c.json {masks}/b.json"),
    Case("export", "export --model {masks}/tiny --mask {masks}/a.json",
         "export --model {masks}/tiny --mask {masks}/b.json"),
)  # fmt: skip


def test_every_command_that_has_an_output_is_here():
    listed = {case.command.split()[0] for case in WRITING}
    assert listed == {command.name for command in COMMANDS} - {"generate", "methods", "models"}


# ----------------------------------------------------------------------------------------------------------------------
# The disk
# ----------------------------------------------------------------------------------------------------------------------


class Disk:
    """Counts the writes below a folder, and has no room for one of them."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.full_at = 0
        self.num_writes = 0

    @contextlib.contextmanager
    def watched(self, folder: Path, full_at: int = 0) -> Iterator[None]:
        self.folder, self.full_at, self.num_writes = f"{folder}{os.sep}", full_at, 0
        try:
            yield
        finally:
            self.folder = None

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        path = written_path(event, arguments)
        if path is None or not path.startswith(self.folder):
            return
        self.num_writes += 1
        if self.num_writes == self.full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def written_path(event: str, arguments: tuple[Any, ...]) -> str | None:
    """What an audit event is about to write; None where it writes nothing. A directory that is there is not written:
    it is asked for once more, or holds the nameless file with which filelock tries it."""
    match event, arguments:
        case "open", (str() | bytes() | os.PathLike() as path, _, int(flags)) if flags & WRITES:
            pass
        case ("os.mkdir", (path, *_)) | ("os.rename", (_, path, *_)):
            pass
        case _:
            return None
    path = os.path.abspath(os.fsdecode(path))
    return None if os.path.isdir(path) else path


DISK = Disk()
sys.addaudithook(DISK.hear)


# ----------------------------------------------------------------------------------------------------------------------
# The commands on it
# ----------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Whole:
    """A run that nothing has disturbed, and how often it has written."""

    path: Path
    num_writes: int


Undisturbed = Callable[..., Whole]


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory) -> Undisturbed:
    """From a command, and from another whose results it replaces, to a run of it; made when first asked for."""

    @functools.cache
    def make(words: str, other: str | None = None) -> Whole:
        folder = tmp_path_factory.mktemp("whole")
        if other:
            shutil.copytree(make(other).path, folder / "out")
        with DISK.watched(folder):
            assert run(words.format(**world), folder / "out", *["--overwrite"] * bool(other)) == 0
        return Whole(folder / "out", DISK.num_writes)

    return make


TIMES = re.compile(rb'"(?:seconds\w*|time|tokens_per_second)": ?(?:"[^"]*"|[-+.e\d]+)|^[0-9a-f]{8} (?={)', re.MULTILINE)


def results(path: Path) -> dict[str, bytes]:
    """What is in a directory, but for times, checksums of them, and what others than bosch make of the results."""
    found = {name: data for name, data in content(path).items() if not name.startswith("trackers/")}
    return {name: data if name.endswith(".safetensors") else TIMES.sub(b"", data) for name, data in found.items()}


def fail(words: str, output: Path, full_at: int, capsys: pytest.CaptureFixture, *flags: str) -> None:
    """Run a command whose n-th write finds the disk full."""
    capsys.readouterr()
    with DISK.watched(output.parent, full_at):
        status = run(words, output, *flags)
    said = capsys.readouterr().err
    assert status == 2, said
    assert "Traceback" not in said
    (error,) = (line for line in said.splitlines() if "error" in line)
    assert error.startswith("bosch: error: ")
    assert "No space left on device" in error
    assert str(output.parent) in error
    hidden = {path.name for path in output.parent.rglob(".*")}
    assert hidden <= {LOCK}


Moments = Callable[[int], Iterable[int]]


def few(num_writes: int) -> Iterable[int]:
    """The first, one in the middle, the last."""
    return sorted({1, (num_writes + 1) // 2, num_writes})


def every(num_writes: int) -> Iterable[int]:
    return range(1, num_writes + 1)


at_moments = pytest.mark.parametrize("moments", slow_after(1, [few, every]))
# The thread in which tensorboard writes ends with its error, which the training then meets.
pytestmark = [
    pytest.mark.usefixtures("nothing_slow"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
of_commands = pytest.mark.parametrize("case", WRITING, ids=lambda case: case.name)


@at_moments
@of_commands
def test_a_full_disk_is_said_and_the_same_command_goes_on(case, moments: Moments, world, undisturbed, tmp_path, capsys):
    words, whole = case.command.format(**world), undisturbed(case.command)
    for full_at in moments(whole.num_writes):
        output = tmp_path / str(full_at) / "out"
        output.parent.mkdir()
        (output.parent / "notes.txt").write_text("mine")
        fail(words, output, full_at, capsys)
        assert not output.exists() or {path.name for path in output.iterdir()} - {LOCK}
        assert run(words, output) == 0
        assert results(output) == results(whole.path)
        assert {path.name for path in output.parent.iterdir()} == {"out", "notes.txt"}


@at_moments
@of_commands
def test_a_full_disk_while_another_run_is_replaced(case, moments: Moments, world, undisturbed, tmp_path, capsys):
    """An export replaces the old one at its very end, all others as soon as they begin."""
    words, whole = case.command.format(**world), undisturbed(case.command, case.other)
    for full_at in moments(whole.num_writes):
        output = tmp_path / str(full_at) / "out"
        shutil.copytree(undisturbed(case.other).path, output)
        (output / "notes.txt").write_text("mine")
        before = snapshot(output)
        fail(words, output, full_at, capsys, "--overwrite")
        if full_at == 1 or case.name == "export":
            assert snapshot(output) == before
        assert snapshot(output)["notes.txt"] == before["notes.txt"]
        assert run(words, output, "--overwrite") == 0
        after = results(output)
        assert after.pop("notes.txt") == b"mine"
        assert after == results(whole.path)

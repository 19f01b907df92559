"""New files take the place of an export's, whole or not at all, at whatever moment it is stopped."""

import os
from pathlib import Path

import pytest

from bosch.deploy.export import _clean, _exchange
from small_search import snapshot

OLD = {
    "config.json": b"old",
    "model-00001-of-00002.safetensors": b"old",
    "model-00002-of-00002.safetensors": b"old",
    "README.md": b"old",
}
NEW = {"config.json": b"new", "model.safetensors": b"new", "README.md": b"new", "odd.vocabulary": b"new"}
MINE = {"notes.txt": b"mine", "runs/events": b"mine"}
PARTIAL = f".bosch-partial-{'0' * 32}"


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def content(folder: Path) -> dict[str, bytes]:
    return {name: data for name, (_, data) in snapshot(folder).items()}


def stop_at(number: int, stop) -> None:
    """Let the move of this number, counted from 0, not happen."""
    moves = iter(range(1000))
    for name in ("rename", "replace", "mkdir"):
        before = getattr(Path, name)

        def move(*args, before=before, **options):
            if next(moves) == number:
                stop()
            return before(*args, **options)

        setattr(Path, name, move)


@pytest.fixture(params=["export", "empty"])
def before(request) -> dict[str, bytes]:
    return {**OLD, **MINE} if request.param == "export" else {}


def exchange(tmp_path: Path, before: dict[str, bytes], number: int, stop) -> tuple[Path, int]:
    """In a process of its own; its exit status."""
    output = tmp_path / str(number)
    output.mkdir()
    fill(output, before)
    fill(output / PARTIAL, NEW)
    if (child := os.fork()) == 0:
        stop_at(number, stop)
        try:
            _exchange(output, output / PARTIAL)
        except OSError:
            os._exit(7)
        os._exit(0)
    return output, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_kill_at_any_move_is_undone_by_the_next_export(tmp_path, before):
    after = {**{name: data for name, data in before.items() if name in MINE}, **NEW}
    for number in range(30):
        output, status = exchange(tmp_path, before, number, lambda: os._exit(9))
        _clean(output)
        assert content(output) in (before, after)
        assert {path.name for path in output.iterdir()} == {name.split("/")[0] for name in content(output)}
        if status == 0:
            assert content(output) == after
            break
    assert 5 < number < 29


def test_a_move_that_fails_is_said_and_all_is_as_it_was(tmp_path, before):
    def fail() -> None:
        raise OSError("no space left")

    for number in range(30):
        output, status = exchange(tmp_path, before, number, fail)
        if status == 0:
            break
        assert status == 7
        assert {name: data for name, data in content(output).items() if PARTIAL not in name} == before
    assert 5 < number < 29


@pytest.mark.parametrize("names", ["../kept", "..", ".", "", "/{kept}", "sub/../../kept", "kept/\n../kept/notes.txt"])
def test_names_that_lead_elsewhere_are_not_followed(names, tmp_path):
    """Somebody else may have made what looks like an export that was stopped."""
    kept, output = tmp_path / "kept", tmp_path / "output"
    fill(kept, {"notes.txt": b"mine"})
    fill(output, {**OLD, ".bosch-replaced-1/.bosch-new-names": names.format(kept=kept).encode()})
    for beginning in (".bosch-replaced-2", ".bosch-leaving-2", ".bosch-partial-2"):
        (output / beginning).symlink_to(kept)
    fill(kept, {".bosch-new-names": b"config.json"})
    _clean(output)
    assert content(kept) == {"notes.txt": b"mine", ".bosch-new-names": b"config.json"}
    assert content(output).items() >= OLD.items()

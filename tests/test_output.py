"""Output directories: six kinds of commands on six states of a directory, with and without --overwrite."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bosch.common.files import read_json
from bosch.common.output import LOCK, AnalysisDirectory, OutputDirectory
from bosch.deploy.export import _taking
from bosch.errors import BoschError
from bosch.evaluation.rows import EvalDirectory
from bosch.experiments.compare import ComparisonDirectory
from bosch.experiments.settings import SearchSettings
from bosch.runs import RunDirectory
from bosch.scoring.journal import Journal
from bosch.training.directory import TrainingDirectory
from bosch.version import __version__
from small_commands import CASES, Case, content, run
from small_search import snapshot

pytestmark = pytest.mark.usefixtures("nothing_slow")

# ----------------------------------------------------------------------------------------------------------------------
# The states, through the real commands
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(world, nothing_slow, tmp_path_factory) -> dict[str, Path]:
    """A finished run of each command, and by `NAME other` one of other settings; made when first asked for."""
    folder, known = tmp_path_factory.mktemp("finished"), dict[str, Path]()

    class Runs(dict):
        def __missing__(self, key: str) -> Path:
            case = next(case for case in CASES if case.name == key.split()[0])
            words = (case.other if key.endswith(" other") else case.command).format(**world)
            assert run(words, folder / key) == 0
            self[key] = folder / key
            return folder / key

    return Runs(known)


def bring_about(state: str, case: Case, finished: dict[str, Path], path: Path) -> None:
    if state == "absent":
        return
    if state == "empty":
        path.mkdir()
    elif state == "other files":
        path.mkdir()
        (path / "thesis.tex").write_text("a year of work")
    else:
        shutil.copytree(finished[f"{case.name} other" if state == "other settings" else case.name], path)
        (path / "notes.txt").write_text("mine")
        if state == "unfinished":
            for name in case.unfinished:
                found = path / name
                shutil.rmtree(found) if found.is_dir() else found.unlink()


def without_lock(path: Path) -> dict[str, bytes]:
    return {name: data for name, (_, data) in snapshot(path).items() if name != LOCK}


MEASURED = re.compile(
    rb'"(time|seconds\w*|\w*tokens_per_s\w*|peak_memory_bytes)": ?("[^"]*"|[\d.e+-]+)|^[0-9a-f]{8} (?={)', re.MULTILINE
)
"""What differs between two moments: times, speeds, memory, and the checksums of lines that hold them."""


def answers(path: Path) -> dict[str, bytes]:
    """What a command found, without what it took; nothing that is drawn or tabled from measured times."""
    timed = {"rows.csv", "report.md"} if (path / "bench.png").exists() else set()
    found = {name: data for name, data in content(path).items() if name not in {"notes.txt", *timed}}
    return {name: MEASURED.sub(rb"\1", data) for name, data in found.items()}


@pytest.mark.parametrize("overwrite", [False, True], ids=["", "overwrite"])
@pytest.mark.parametrize("state", ["absent", "empty", "other files", "finished", "unfinished", "other settings"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_on_a_directory(case, state, overwrite, world, finished, tmp_path, capsys):
    whole, path = finished[case.name], tmp_path / "out"
    bring_about(state, case, finished, path)
    before, words = without_lock(path), case.command.format(**world)
    capsys.readouterr()
    status = run(words, path, *["--overwrite"] * overwrite)
    error = capsys.readouterr().err
    if state == "other files" or (state == "other settings" and not overwrite):
        assert status == 2
        assert without_lock(path) == before
        expected = (
            "is not empty and holds no " if state == "other files" else "; choose another directory or --overwrite"
        )
        assert expected in error
        assert error.count("\n") == 1
        return
    assert status == 0, error
    after = without_lock(path)
    assert after.get("notes.txt") == before.get("notes.txt")
    assert after.keys() - {"notes.txt"} == without_lock(whole).keys()
    if state == "finished":
        assert after == before
    assert answers(path) == answers(whole)


EXPORT = Case("export", "export --model {masks}/tiny --mask {masks}/b.json", "", ())


@pytest.mark.parametrize("second", [*CASES, EXPORT], ids=lambda case: case.name)
@pytest.mark.parametrize("first", [*CASES, EXPORT], ids=lambda case: case.name)
def test_two_commands_do_not_work_in_one_directory(first, second, world, tmp_path, capsys):
    """The first has claimed the directory, which is absent or empty, and still loads its model."""
    path = tmp_path / "out"
    claiming = _taking(path, overwrite=False) if first is EXPORT else AnalysisDirectory(path).held()
    with claiming:
        if first is EXPORT and second is not EXPORT:
            pytest.skip("an export makes its directory at the end; then it finds the other's there and is refused")
        before = snapshot(path)
        assert run(second.command.format(**world), path, "--overwrite") == 2
        assert snapshot(path) == before
    error = capsys.readouterr().err
    assert "is in use by another running command" in error or "is not empty and no exported model" in error
    assert error.count("\n") == 1


def test_an_export_that_was_overtaken_is_refused(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(BoschError, match="is not empty and no exported model"), _taking(path, overwrite=True):
        open_run(path, SETTINGS)
    assert read_json(path / "run.json")["settings"]["window"] == 4
    assert list(tmp_path.iterdir()) == [path]


# ----------------------------------------------------------------------------------------------------------------------
# The directory itself
# ----------------------------------------------------------------------------------------------------------------------

SETTINGS = SearchSettings(model="m", ratio=0.5, window=4)
OTHER = dataclasses.replace(SETTINGS, window=8)
KINDS = (RunDirectory, ComparisonDirectory, EvalDirectory, TrainingDirectory, AnalysisDirectory)


def open_run(path: Path, settings: SearchSettings, overwrite: bool = False) -> RunDirectory:
    run = RunDirectory(path)
    with run.claimed(settings, overwrite=overwrite) as claim:
        claim.begin()
    return run


def begin(path: Path, num_evaluations: int = 0) -> RunDirectory:
    """A run that was stopped after so many evaluations."""
    run = open_run(path, SETTINGS)
    with contextlib.closing(Journal(run.journal, {})) as journal:
        for number in range(num_evaluations):
            journal.append({"mask": str(number)})
    return run


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """As root, be nobody for a while: root may write anywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("kind", ["missing", "deep", "empty"])
def test_a_new_run_says_what_it_is(tmp_path, kind):
    path = {"missing": tmp_path / "run", "deep": tmp_path / "a" / "b", "empty": tmp_path}[kind]
    found = read_json(open_run(path, SETTINGS).settings)
    assert found["settings"]["model"] == "m"
    assert found["settings"]["lengths"] == [512]
    assert {"bosch", "torch", "transformers", "time"} <= found["provenance"].keys()
    assert found["provenance"]["bosch"] == __version__


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_settings_go_on(tmp_path, overwrite):
    begin(tmp_path, num_evaluations=1)
    before = snapshot(tmp_path)
    open_run(tmp_path, SETTINGS, overwrite=overwrite)
    assert snapshot(tmp_path) == before


def test_a_run_may_go_on_with_another_memory_budget(tmp_path):
    run = begin(tmp_path, num_evaluations=1)
    open_run(tmp_path, dataclasses.replace(SETTINGS, memory_gib=1.0))
    assert run.has_results


def test_settings_of_an_earlier_version_are_read_under_their_names_of_today(tmp_path):
    """`length` is `lengths` now, and there were no parameters of methods: a run of then goes on."""
    run = begin(tmp_path, num_evaluations=1)
    data = read_json(run.settings)
    data["settings"]["length"] = data["settings"].pop("lengths")
    del data["settings"]["method_options"]
    run.settings.write_text(json.dumps(data))
    before = snapshot(tmp_path)
    open_run(tmp_path, SETTINGS)
    assert snapshot(tmp_path) == before
    with pytest.raises(BoschError, match=r"its lengths is \[512\], now it is \[256\]"):
        open_run(tmp_path, dataclasses.replace(SETTINGS, lengths=(256,)))
    with pytest.raises(BoschError, match=r"its method_options is \[\], now it is \['steps=3'\]"):
        open_run(tmp_path, dataclasses.replace(SETTINGS, method_options=("steps=3",)))


def test_a_training_of_an_earlier_version_is_read(tmp_path):
    run = {"data": ["books"], "length": [128], "held-out examples": "abc", "number of processes": 1}
    (tmp_path / "training.json").write_text(json.dumps({"schema": "bosch.training/1", "run": run, "provenance": {}}))
    found = TrainingDirectory(tmp_path).read_settings()
    assert found == {"texts": ["books"], "lengths": [128], "heldout_examples": "abc", "num_processes": 1}


def test_other_settings_are_refused_by_name(tmp_path):
    begin(tmp_path, num_evaluations=1)
    before = snapshot(tmp_path)
    with pytest.raises(BoschError, match=r"holds another search \(its window is 4, now it is 8\); .* --overwrite"):
        open_run(tmp_path, OTHER)
    assert snapshot(tmp_path) == before


def test_a_run_without_evaluations_gives_way(tmp_path):
    """A first command with a mistake must not stand in the way of the right one."""
    begin(tmp_path)
    run = open_run(tmp_path, OTHER)
    assert read_json(run.settings)["settings"]["window"] == 8
    assert not run.journal.exists()


def test_overwriting_removes_what_a_run_made_and_nothing_else(tmp_path):
    run = begin(tmp_path, num_evaluations=1)
    for name in ("mask.json", "scores.json", "selection.json", "report.md", "heldout.jsonl", "front.svg", "mask.png"):
        (tmp_path / name).write_text("old")
    for folder in (run.masks, run.unit_scores):
        folder.mkdir()
        (folder / "0001.json").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    open_run(tmp_path, OTHER, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "notes.txt", LOCK}
    assert read_json(run.settings)["settings"]["window"] == 8


def test_nothing_is_removed_before_the_new_run_begins(tmp_path):
    """Its inputs turned out to be wrong: what was there is there."""
    begin(tmp_path, num_evaluations=1)
    before = snapshot(tmp_path)
    claiming = RunDirectory(tmp_path).claimed(OTHER, overwrite=True)
    assert claiming.__enter__().is_new
    claiming.__exit__(BoschError, BoschError("no such model"), None)
    assert snapshot(tmp_path) == before


def test_a_directory_of_which_nothing_came_disappears(tmp_path):
    with pytest.raises(BoschError, match="no such model"), RunDirectory(tmp_path / "run").claimed(SETTINGS):
        raise BoschError("no such model")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("second", KINDS, ids=lambda kind: kind.called)
@pytest.mark.parametrize("first", KINDS, ids=lambda kind: kind.called)
def test_one_command_at_a_time(first: type[OutputDirectory], second: type[OutputDirectory], tmp_path):
    """From before its slow beginning on, whatever either of them is."""
    with first(tmp_path).claimed({"a": 1}):
        before = snapshot(tmp_path)
        for overwrite in (False, True):
            with (
                pytest.raises(BoschError, match="is in use by another running command; expected one at a time"),
                second(tmp_path).claimed({"a": 2}, overwrite=overwrite),
            ):
                pass
        assert snapshot(tmp_path) == before
    with second(tmp_path).claimed({"a": 2}) as claim:
        claim.begin()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "journal.jsonl", ".run.json"])
def test_a_directory_that_is_no_run_is_refused_and_kept(tmp_path, name, overwrite):
    (tmp_path / name).write_text("a year of work")
    with pytest.raises(BoschError, match="is not empty and holds no search"):
        open_run(tmp_path, SETTINGS, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "a year of work"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "data", ['{"schema": "other"}', "[]", '{"schema": "bosch.run/1"}', '{"settings": {}}', "{", ""]
)
def test_settings_of_something_else_are_refused_and_kept(tmp_path, data, overwrite):
    (tmp_path / "run.json").write_text(data)
    with pytest.raises(BoschError, match=rf"{tmp_path}/run.json"):
        open_run(tmp_path, SETTINGS, overwrite=overwrite)
    assert (tmp_path / "run.json").read_text() == data


def test_a_run_killed_while_it_wrote_its_settings_begins_again(tmp_path):
    (tmp_path / ".run.json.0123abcd").write_text('{"schema": "bo')
    assert read_json(open_run(tmp_path, SETTINGS).settings)["settings"]["window"] == 4


def test_a_stop_while_overwriting_leaves_a_run(tmp_path, monkeypatch):
    begin(tmp_path, num_evaluations=1)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bosch.common.output.write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            open_run(tmp_path, OTHER, overwrite=True)
    assert read_json(open_run(tmp_path, OTHER).settings)["settings"]["window"] == 8


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BoschError, match="file is a file; expected a directory"):
        open_run(tmp_path / "file", SETTINGS)
    with pytest.raises(BoschError, match=f"cannot make the directory {tmp_path}/file/run: Not a directory"):
        open_run(tmp_path / "file" / "run", SETTINGS)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_that_cannot_be_written_is_named():
    # Not in tmp_path, which is closed to other users.
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o555)
        with unprivileged():
            with pytest.raises(BoschError, match=f"cannot write {path}: Permission denied"):
                open_run(path, SETTINGS)
            with pytest.raises(BoschError, match=f"cannot make the directory {path}/run: Permission denied"):
                open_run(path / "run", SETTINGS)
        assert not any(path.iterdir())

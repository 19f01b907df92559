import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bosch.errors import BoschError
from bosch.common.output import open_directory
from bosch.common.files import read_json
from bosch.scoring.journal import Journal
from bosch.runs import RunDirectory
from bosch.experiments.settings import SearchSettings
from small_search import snapshot

SETTINGS = SearchSettings(model="m", ratio=0.5, window=4)
OTHER = dataclasses.replace(SETTINGS, window=8)


def open_run(path: Path, settings: SearchSettings, overwrite: bool = False) -> RunDirectory:
    run = RunDirectory(path)
    open_directory(run, settings, overwrite=overwrite)
    return run


def begin(path: Path, num_evaluations: int = 0) -> RunDirectory:
    """A run that was stopped after so many evaluations."""
    run = open_run(path, SETTINGS)
    with Journal(run.journal, {}) as journal:
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
    assert found["settings"]["length"] == [512]
    assert {"bosch", "torch", "transformers", "time"} <= found["provenance"].keys()


def test_the_same_settings_go_on(tmp_path):
    begin(tmp_path, num_evaluations=1)
    before = snapshot(tmp_path)
    open_run(tmp_path, SETTINGS)
    open_run(tmp_path, SETTINGS, overwrite=True)
    assert snapshot(tmp_path) == before


def test_a_run_may_go_on_with_another_memory_budget(tmp_path):
    run = begin(tmp_path, num_evaluations=1)
    open_run(tmp_path, dataclasses.replace(SETTINGS, memory_gib=1.0))
    assert run.has_evaluations


def test_other_settings_are_refused_by_name(tmp_path):
    begin(tmp_path, num_evaluations=1)
    before = snapshot(tmp_path)
    with pytest.raises(BoschError, match=r"holds another run \(its window is 4, now it is 8\); .* --overwrite"):
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
    made = [run.mask, run.scores, run.selection, run.report, run.heldout_journal, *run.pictures]
    for path in made:
        path.write_text("old")
    run.path_masks.mkdir()
    (run.path_masks / "0001.json").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    open_run(tmp_path, OTHER, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "notes.txt"}
    assert read_json(run.settings)["settings"]["window"] == 8


@pytest.mark.parametrize("num_evaluations", [0, 1])
def test_a_running_search_is_not_overwritten(tmp_path, num_evaluations):
    run = begin(tmp_path, num_evaluations)
    before = snapshot(tmp_path)
    with Journal(run.journal, {}), pytest.raises(BoschError, match="in use by another running search"):
        open_run(tmp_path, OTHER, overwrite=True)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "journal.jsonl", ".run.json"])
def test_a_directory_that_is_no_run_is_refused_and_kept(tmp_path, name, overwrite):
    (tmp_path / name).write_text("a year of work")
    before = snapshot(tmp_path)
    with pytest.raises(BoschError, match="is not empty and holds no run"):
        open_run(tmp_path, SETTINGS, overwrite=overwrite)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "data", ['{"schema": "other"}', "[]", '{"schema": "bosch.run/1"}', '{"settings": {}}', "{", ""]
)
def test_settings_of_something_else_are_refused_and_kept(tmp_path, data, overwrite):
    (tmp_path / "run.json").write_text(data)
    before = snapshot(tmp_path)
    with pytest.raises(BoschError, match=rf"{tmp_path}/run.json.* choose another output directory"):
        open_run(tmp_path, SETTINGS, overwrite=overwrite)
    assert snapshot(tmp_path) == before


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
            with pytest.raises(BoschError, match=f"cannot write {path}/run.json: Permission denied"):
                open_run(path, SETTINGS)
            with pytest.raises(BoschError, match=f"cannot make the directory {path}/run: Permission denied"):
                open_run(path / "run", SETTINGS)
        assert not any(path.iterdir())

import errno
import json
import os
import pickle
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch import BoschError
from bosch.common.files import MAX_JSON_BYTES, read_json, write_bytes, write_json, write_text

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON_VALUES)
def test_json_comes_back_as_it_was_written(value, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "data.json"
    write_json(path, value)
    assert read_json(path) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b"[NaN]", "NaN is not a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"9" * 5000, "not valid JSON"),
        (pickle.dumps({"full": [[True]]}), "not valid JSON"),
    ],
    ids=["empty", "torn", "python", "nan", "infinity", "binary", "deep", "long number", "pickle"],
)
def test_what_is_not_json_is_refused(tmp_path, content, message):
    path = tmp_path / "data.json"
    path.write_bytes(content)
    with pytest.raises(BoschError, match=message):
        read_json(path)


def test_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)  # sparse: it takes no disk
    with pytest.raises(BoschError, match=f"the file is {MAX_JSON_BYTES + 1} bytes, expected at most {MAX_JSON_BYTES}"):
        read_json(path)


def test_missing_file_and_directory_are_refused(tmp_path):
    with pytest.raises(BoschError, match="cannot read it: No such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(BoschError, match="cannot read it: Is a directory"):
        read_json(tmp_path)


def test_value_that_json_lacks_leaves_the_old_file(tmp_path):
    path = tmp_path / "data.json"
    write_json(path, 1)
    with pytest.raises(ValueError):
        write_json(path, float("nan"))
    assert read_json(path) == 1


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, call):
    path = tmp_path / "data.txt"
    write_text(path, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(BoschError, match=f"cannot write {path}: No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_interruption_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "data.txt"
    write_text(path, "old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("directory", ["missing", "file"])
def test_place_that_is_no_directory_is_refused(tmp_path, directory):
    (tmp_path / "file").write_text("")
    with pytest.raises(BoschError, match=r"cannot write .*data\.json: (No such file|Not a directory)"):
        write_json(tmp_path / directory / "data.json", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directory_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BoschError, match=r"cannot write .*: Permission denied"):
        write_json(tmp_path / "data.json", {})


def test_others_may_read_as_the_umask_says(tmp_path):
    reference = tmp_path / "reference"
    reference.touch()
    path = tmp_path / "data.bin"
    write_bytes(path, b"\x00")
    assert _mode(path) == _mode(reference)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)

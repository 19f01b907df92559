import errno
import json
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.errors import BoschError
from bosch.scoring.journal import Journal

SUBJECT = {"model": "m", "window": 4}
ENTRIES = [{"mask": "01.10", "nlls": [0.1, 1e-300]}, {"mask": "11.10", "nlls": [2.5]}, {"mask": "00", "nlls": []}]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path, SUBJECT) as journal:
        for entry in ENTRIES:
            journal.append(entry)
    return path.read_bytes()


@given(st.data())
def test_a_kill_at_any_byte_loses_at_most_the_line_being_written(written, tmp_path_factory, data):
    length = data.draw(st.integers(0, len(written)))
    path = tmp_path_factory.mktemp("cut") / "journal.jsonl"
    path.write_bytes(written[:length])
    num_whole = written[:length].count(b"\n")
    with Journal(path, SUBJECT) as journal:
        kept = max(0, num_whole - 1)
        assert journal.entries == ENTRIES[:kept]
        for entry in ENTRIES[kept:]:
            journal.append(entry)
    assert path.read_bytes() == written


@given(st.data())
def test_a_changed_byte_in_a_whole_line_is_an_error_that_names_the_line(written, tmp_path_factory, data):
    position = data.draw(st.sampled_from([i for i, byte in enumerate(written) if byte != ord("\n")]))
    path = tmp_path_factory.mktemp("damaged") / "journal.jsonl"
    path.write_bytes(written[:position] + bytes([written[position] ^ 1]) + written[position + 1 :])
    with pytest.raises(BoschError, match=f"damaged at line {written[:position].count(10) + 1}"):
        Journal(path, SUBJECT)
    assert len(path.read_bytes()) == len(written)


def test_a_journal_of_another_search_is_refused(tmp_path):
    Journal(tmp_path / "j", SUBJECT).close()
    with pytest.raises(BoschError, match="its window is 4, now it is 8"):
        Journal(tmp_path / "j", {**SUBJECT, "window": 8})


def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path):
    text = json.dumps({"schema": "other"}).encode()
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    (tmp_path / "j").write_bytes(line)
    with pytest.raises(BoschError, match="is not a journal"):
        Journal(tmp_path / "j", SUBJECT)
    assert (tmp_path / "j").read_bytes() == line


def test_a_full_disk_is_one_sentence_and_what_was_written_stays(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(tmp_path / "j", SUBJECT) as journal:
        journal.append(ENTRIES[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(BoschError, match="No space left on device"):
                journal.append(ENTRIES[1])
    with open(tmp_path / "j", "ab") as file:
        file.write(b"0123abcd {torn")
    with Journal(tmp_path / "j", SUBJECT) as again:
        assert again.entries[:1] == ENTRIES[:1]


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(BoschError, match="cannot write"):
        Journal(tmp_path / "missing" / "j", SUBJECT)

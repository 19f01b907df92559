import json

import pytest
from local_data import document, write_lines

from bosch.errors import BoschError
from bosch.evaluation.longbench import Document, read_documents


def test_reads_what_is_published(tmp_path):
    classified = document("trec", answers=["Food"], all_classes=["Food", "Date"], context="长文")
    write_lines(tmp_path / "trec.jsonl", [classified, document("trec")])
    assert read_documents(tmp_path, "trec") == (
        Document("长文", "Who wrote it?", ("Food",), ("Food", "Date")),
        Document("A book. Ann wrote it.", "Who wrote it?", ("Ann", "Ann Lee"), ()),
    )


def test_a_line_ends_at_a_newline_alone(tmp_path):
    context = "one\u2028two\u0085three\x0cfour"  # what str.splitlines would take for the ends of lines
    write_lines(tmp_path / "qasper.jsonl", [document("qasper", context=context), document("qasper")])
    assert [found.context for found in read_documents(tmp_path, "qasper")] == [context, "A book. Ann wrote it."]


def test_empty_lines_are_passed_over_and_still_counted(tmp_path):
    path = tmp_path / "qasper.jsonl"
    path.write_text("\n" + json.dumps(document("qasper")) + "\n\n{}\n")
    assert len(read_documents(tmp_path, "qasper", limit=1)) == 1
    with pytest.raises(BoschError, match=r"qasper\.jsonl, line 4: it lacks context, input, answers, dataset"):
        read_documents(tmp_path, "qasper")


def test_limit_takes_the_first(tmp_path):
    write_lines(tmp_path / "qasper.jsonl", [document("qasper", input=str(number)) for number in range(5)])
    assert [found.input for found in read_documents(tmp_path, "qasper", limit=3)] == ["0", "1", "2"]
    assert len(read_documents(tmp_path, "qasper", limit=7)) == 5


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
def test_limit_that_is_none(tmp_path, limit):
    write_lines(tmp_path / "qasper.jsonl", [document("qasper")])
    with pytest.raises(BoschError, match="the limit must be an integer of at least 1 example, got"):
        read_documents(tmp_path, "qasper", limit=limit)


def test_missing_file_says_what_to_fetch(tmp_path):
    with pytest.raises(BoschError, match=r"there is no .*qasper\.jsonl; unpack LongBench's data\.zip"):
        read_documents(tmp_path, "qasper")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 10**5, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
        ("[1]", r"expected an object, found \[1\]"),
        ("null", "expected an object, found None"),
        (json.dumps({"input": "", "answers": [""]}), "it lacks context, dataset; expected context, input, answers"),
        (json.dumps(document("qasper", context=3)), "context must be of type str, found 3"),
        (json.dumps(document("qasper", input=None)), "input must be of type str, found None"),
        (json.dumps(document("qasper", answers="Ann")), "answers must be of type list, found 'Ann'"),
        (json.dumps(document("qasper", answers=[])), r"answers must be a list of at least one text, found \[\]"),
        (json.dumps(document("qasper", answers=[3])), r"answers must be a list of at least one text, found \[3\]"),
        (json.dumps(document("qasper", all_classes="Food")), "all_classes must be null or a list of texts"),
        (json.dumps(document("qasper", all_classes=[1])), "all_classes must be null or a list of texts"),
        (json.dumps(document("hotpotqa")), "it is of the data set 'hotpotqa', expected 'qasper'"),
    ],
)
def test_wrong_lines_are_named(tmp_path, line, message):
    path = tmp_path / "qasper.jsonl"
    path.write_text(json.dumps(document("qasper")) + "\n" + line + "\n")
    with pytest.raises(BoschError, match=rf"qasper\.jsonl, line 2: {message}"):
        read_documents(tmp_path, "qasper")


def test_files_that_are_none(tmp_path):
    (tmp_path / "qasper.jsonl").write_text("\n")
    (tmp_path / "hotpotqa.jsonl").write_bytes(b"\xff\xfe{}")
    (tmp_path / "musique.jsonl").mkdir()
    with pytest.raises(BoschError, match=r"qasper\.jsonl has no line"):
        read_documents(tmp_path, "qasper")
    with pytest.raises(BoschError, match=r"hotpotqa\.jsonl: not UTF-8 text"):
        read_documents(tmp_path, "hotpotqa")
    with pytest.raises(BoschError, match=r"musique\.jsonl: cannot read it: Is a directory"):
        read_documents(tmp_path, "musique")

# ruff: noqa: RUF001 - Chinese texts have Chinese punctuation
import pytest

from bosch.errors import BoschError
from bosch.evaluation.metrics import count, retrieval, retrieval_zh


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("17", ["17"], 1),
        ("There are 17 unique paragraphs.", ["17"], 1),
        ("17 or 18", ["17"], 1 / 2),
        ("17, 17, 3", ["17"], 2 / 3),
        ("17.5", ["17"], 1 / 2),  # 17 and 5
        ("017", ["17"], 0),
        ("1 7", ["17"], 0),
        ("seventeen", ["17"], 0),
        ("", ["17"], 0),
        ("17", ["3", "17"], 1),
    ],
)
def test_count(answer, references, expected):
    assert count(answer, references) == expected


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("Paragraph 7", ["Paragraph 7"], 1),
        (" 7\n", ["Paragraph 7"], 1),
        ("Paragraph 17", ["Paragraph 7"], 0),
        ("Paragraph 7 and Paragraph 12", ["Paragraph 7"], 1 / 2),
        ("Paragraph seven", ["Paragraph 7"], 0),
        ("", ["Paragraph 7"], 0),
        ("Paragraph 7", ["Paragraph 3", "Paragraph 7"], 1),
    ],
)
def test_retrieval(answer, references, expected):
    assert retrieval(answer, references) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("段落7", 1), ("答案是：段落7。", 1), ("段落7、段落3、段落9", 1 / 3), ("第七段", 0), ("段落17", 0), ("", 0)],
)
def test_retrieval_zh(answer, expected):
    assert retrieval_zh(answer, ["段落7"]) == expected


def test_a_reference_that_names_no_paragraph():
    with pytest.raises(
        BoschError, match="the reference '段落7' names no paragraph; expected one such as 'Paragraph 7'"
    ):
        retrieval("7", ["段落7"])
    with pytest.raises(BoschError, match="expected one such as '段落7'"):
        retrieval_zh("7", ["Paragraph 7"])

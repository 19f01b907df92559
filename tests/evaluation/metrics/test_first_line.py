import pytest

from bosch.evaluation.metrics import first_line


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Food\nQuestion: Who?", "Food"),
        ("\n\nFood\n", "Food"),
        ("Food", "Food"),
        (" Food", " Food"),
        ("  \nFood", "  "),  # a line of spaces is a line
        ("", ""),
        ("\n", ""),
    ],
)
def test_first_line(answer, expected):
    assert first_line(answer) == expected

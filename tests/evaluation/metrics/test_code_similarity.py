"""Similarity = 2 M / T in hundredths: M characters in matching blocks, T characters of both lines."""

import pytest

from bosch.evaluation.metrics import code_similarity


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("return x", ["return x"], 1),
        ("abcd", ["bcde"], 0.75),  # bcd: M=3 T=8
        ("return y", ["return x"], 0.88),  # M=7 T=16: 87.5, rounded to the even 88
        ("abcdefgh", ["hijklmno"], 0.12),  # h: M=1 T=16: 12.5, rounded to the even 12
        ("tide", ["diet"], 0.25),  # t is the first of the longest blocks, nothing matches on its sides: M=1 T=8
        ("diet", ["tide"], 0.5),  # d, then e: M=2 T=8
        ("    return x", ["return x"], 0.8),  # indentation counts: M=8 T=20
        ("x = 1\ny = 2", ["x = 1"], 1),
        ("\n\nx = 1", ["x = 1"], 1),
        ("   \nx = 1", ["x = 1"], 0.5),  # a line of spaces is a line: two of its spaces match, M=2 T=8
        ("# first\nx = 1", ["x = 1"], 1),
        ("// first\nint x;", ["int x;"], 1),
        ("```python\nx = 1\n```", ["x = 1"], 1),
        ("x = 1  # set\ny = 2", ["y = 2"], 1),  # a comment anywhere passes the whole line over
        ("# only", ["x"], 0),  # no line is left
        ("", ["x"], 0),
        ("", [""], 1),
        ("x", ["y", "xx", "x"], 1),
    ],
)
def test_first_line_of_code(answer, references, expected):
    assert code_similarity(answer, references) == expected

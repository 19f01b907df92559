import pytest

from bosch.errors import BoschError
from bosch.evaluation.results import Suite, SuiteResult, TaskResult, to_markdown

SUITE = Suite("small", {"reading": ("a", "b"), "counting": ("d",)})
ORIGINAL = SuiteResult(SUITE, "original", (TaskResult("a", 0.5, 7), TaskResult("b", 0.251, 7), TaskResult("d", 1.0, 3)))
HYBRID = SuiteResult(SUITE, "rho=0.5 | w=64", (TaskResult("a", 0.125, 7), TaskResult("d", 0.5, 2, is_limited=True)))


def test_markdown():
    assert to_markdown([ORIGINAL, HYBRID]) == (
        "| small | examples | original | rho=0.5 \\| w=64 |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| **reading** |  | 37.5 | incomplete |\n"  # the mean of 50.0 and 25.1, 37.55, lies a rounding error below
        "| a | 7 | 50.0 | 12.5 |\n"
        "| b | 7 | 25.1 | - |\n"
        "| **counting** |  | 100.0 | 50.0\\* |\n"
        "| d | 2, 3 | 100.0 | 50.0\\* |\n"
        "| **Average** |  | 68.8 | incomplete |\n"
        "\n"
        "\\* only the first examples of a task were asked: not a result\n"
    )


def test_markdown_of_whole_runs_has_no_note():
    assert "first examples" not in to_markdown([ORIGINAL])


def test_one_table_holds_one_suite():
    other = SuiteResult(Suite("other", {"reading": ("a",)}), "original", ())
    with pytest.raises(BoschError, match="a table holds results of one suite, got small and other"):
        to_markdown([ORIGINAL, other])

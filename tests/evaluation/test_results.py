import math

import pytest

from bosch.errors import BoschError
from bosch.evaluation.results import LONGBENCH, Suite, SuiteResult, TaskResult

SUITE = Suite("small", {"reading": ("a", "b", "c"), "counting": ("d",)})
COMPLETE = SuiteResult(
    SUITE,
    "original",
    (TaskResult("a", 0.5, 7), TaskResult("d", 1.0, 3), TaskResult("b", 0.25, 7), TaskResult("c", 0.0, 11)),
)
PARTIAL = SuiteResult(SUITE, "hybrid", (TaskResult("a", 0.5, 7), TaskResult("d", 0.5, 2, is_limited=True)))

# Rows "Original" of the paper's tables of LongBench: its seven categories in percent, then the average.
PAPER = {
    "Qwen3-1.7B-Base": ((39.8, 30.9, 26.0, 67.4, 32.7, 48.2, 72.6), 45.4),
    "Qwen3-8B-Base": ((45.5, 41.9, 26.8, 70.3, 63.0, 66.6, 85.8), 57.1),
    "Qwen3-14B-Base": ((43.7, 43.5, 27.0, 72.1, 66.7, 66.6, 89.2), 58.4),
    "Qwen3-30B-A3B-Base": ((24.6, 39.8, 27.6, 70.0, 64.3, 67.8, 90.1), 54.9),
}


def test_averages_are_unweighted():
    assert COMPLETE.category_score("reading") == 0.25  # whatever the numbers of examples
    assert COMPLETE.overall_score == (0.25 + 1.0) / 2  # whatever the numbers of tasks
    assert COMPLETE.missing("reading") == ()


@pytest.mark.parametrize("model", PAPER)
def test_averages_are_the_papers(model):
    categories, average = PAPER[model]
    tasks = [
        TaskResult(task, score / 100, 200)
        for names, score in zip(LONGBENCH.categories.values(), categories, strict=True)
        for task in names
    ]
    assert SuiteResult(LONGBENCH, model, tuple(tasks)).overall_score == pytest.approx(average / 100, abs=0.0005001)


def test_an_average_that_lacks_a_task_is_none():
    assert PARTIAL.category_score("reading") is None
    assert PARTIAL.missing("reading") == ("b", "c")
    assert PARTIAL.category_score("counting") == 0.5
    assert PARTIAL.overall_score is None
    assert SuiteResult(SUITE, "nothing", ()).overall_score is None


def test_limited_runs_are_marked_wherever_they_count():
    assert PARTIAL.is_limited()
    assert PARTIAL.is_limited("counting")
    assert not PARTIAL.is_limited("reading")
    assert not COMPLETE.is_limited()


@pytest.mark.parametrize("score", [-1, -0.001, 1.001, 62.5, math.nan, math.inf, True, "0.5", None])
def test_a_placeholder_is_no_score(score):
    with pytest.raises(BoschError, match="the score of a must be a number from 0 to 1, got"):
        TaskResult("a", score, 7)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "7", None])
def test_a_score_of_no_examples(number):
    with pytest.raises(BoschError, match="a needs an integer of at least 1 example, got"):
        TaskResult("a", 0.5, number)


def test_tasks_that_do_not_belong():
    with pytest.raises(BoschError, match="'e' is no task of small; expected: a, b, c, d"):
        SuiteResult(SUITE, "original", (TaskResult("e", 0.5, 7),))
    with pytest.raises(BoschError, match="a has 2 results, expected one"):
        SuiteResult(SUITE, "original", (TaskResult("a", 0.5, 7), TaskResult("a", 0.25, 7)))

"""What an evaluation found: one score a task, averages that are never taken over tasks that are missing, and their
table."""

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import fmean

from bosch.calibration.tasks import TASKS as NEEDLE_TASKS
from bosch.errors import BoschError
from bosch.evaluation import gsm8k, longbench


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """A model's score on one task.

    Args:
        task: its name.
        score: mean over the examples, from 0 to 1; higher is better.
        num_examples: how many examples, at least 1.
        is_limited: only the task's first examples were asked, so that the score is no result.

    Raises:
        BoschError: the score is not a number in [0, 1], or there is no example. Harnesses write -1 or NaN where they
            have nothing; such a placeholder is never averaged.
    """

    task: str
    score: float
    num_examples: int
    is_limited: bool = False

    def __post_init__(self) -> None:
        if type(self.score) not in (int, float) or not 0 <= self.score <= 1:
            raise BoschError(f"the score of {self.task} must be a number from 0 to 1, got {self.score!r}")
        if type(self.num_examples) is not int or self.num_examples < 1:
            raise BoschError(f"{self.task} needs an integer of at least 1 example, got {self.num_examples!r}")


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tasks that are reported together.

    Args:
        name: what the table is called.
        categories: for each category the names of its tasks, in the order of the table.
    """

    name: str
    categories: Mapping[str, tuple[str, ...]]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of all tasks, in the order of the table."""
        return tuple(task for tasks in self.categories.values() for task in tasks)


@dataclasses.dataclass(frozen=True)
class SuiteResult:
    """A model's scores on a suite, all of it or as far as it got.

    Args:
        suite: what was to be evaluated.
        model: what the model is called in a table.
        tasks: at most one result for each of the suite's tasks.

    Raises:
        BoschError: a task is not of the suite, or is there twice.
    """

    suite: Suite
    model: str
    tasks: tuple[TaskResult, ...]

    def __post_init__(self) -> None:
        names = [result.task for result in self.tasks]
        if strange := [name for name in names if name not in self.suite.tasks]:
            raise BoschError(f"{strange[0]!r} is no task of {self.suite.name}; expected: {', '.join(self.suite.tasks)}")
        if twice := [name for name in names if names.count(name) > 1]:
            raise BoschError(f"{twice[0]} has {names.count(twice[0])} results, expected one")

    @property
    def by_task(self) -> Mapping[str, TaskResult]:
        """The results by the name of their task."""
        return {result.task: result for result in self.tasks}

    def missing(self, category: str) -> tuple[str, ...]:
        """The tasks of a category that have no result."""
        return tuple(task for task in self.suite.categories[category] if task not in self.by_task)

    def category_score(self, category: str) -> float | None:
        """Unweighted mean over a category's tasks; None where one is missing."""
        if self.missing(category):
            return None
        return fmean(self.by_task[task].score for task in self.suite.categories[category])

    @property
    def overall_score(self) -> float | None:
        """Unweighted mean over the categories, as the paper averages (B.6); None where a task is missing."""
        scores = [self.category_score(category) for category in self.suite.categories]
        complete = [score for score in scores if score is not None]
        return fmean(complete) if len(complete) == len(scores) else None

    def is_limited(self, *categories: str) -> bool:
        """Whether a result of one of these categories, by default of any, is of a task's first examples only."""
        tasks = [task for category in categories or self.suite.categories for task in self.suite.categories[category]]
        return any(result.is_limited for result in self.tasks if result.task in tasks)


LONGBENCH = Suite(
    "longbench",
    {
        **{
            category: tuple(task.name for task in longbench.TASKS.values() if task.category == category)
            for category in longbench.CATEGORIES
        },
        "Math Reasoning": (gsm8k.NAME,),
    },
)
"""The paper's LongBench: the six categories of the benchmark, and GSM8K as a seventh."""

NIAH = Suite(
    "niah",
    {
        category: tuple(name for name in NEEDLE_TASKS if name.startswith(f"niah_{category}_"))
        for category in ("single", "multikey")
    },
)
"""The paper's NIAH, at each length: three single and three multikey tasks of RULER, and the mean over the six."""


LIMITED_NOTE = "\\* only the first examples of a task were asked: not a result"


def to_markdown(results: Sequence[SuiteResult]) -> str:
    """A table in percent: a row for each category, its tasks under it, the average last; a column for each model.

    A score of a task's first examples only has an asterisk, and so has each average that it is part of. A task
    without a result has a dash, an average that lacks a task the word incomplete.

    Args:
        results: at least one, all of one suite.

    Raises:
        BoschError: they are of different suites.
    """
    suite = _common_suite(results)
    rows = [
        [suite.name, "examples", *(_escaped(result.model) for result in results)],
        ["---", *["---:"] * (len(results) + 1)],
    ]
    for category, tasks in suite.categories.items():
        averages = (_average(result.category_score(category), result.is_limited(category)) for result in results)
        rows.append([f"**{category}**", "", *averages])
        rows += [[task, _examples(results, task), *(_task_score(result, task) for result in results)] for task in tasks]
    rows.append(["**Average**", "", *(_average(result.overall_score, result.is_limited()) for result in results)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if any(result.is_limited() for result in results):
        lines += ["", LIMITED_NOTE]
    return "\n".join(lines) + "\n"


def _common_suite(results: Sequence[SuiteResult]) -> Suite:
    suite = results[0].suite
    if other := next((result for result in results if result.suite != suite), None):
        raise BoschError(f"a table holds results of one suite, got {suite.name} and {other.suite.name}")
    return suite


def _examples(results: Sequence[SuiteResult], task: str) -> str:
    """How many examples the models were asked; several numbers where they differ."""
    numbers = {result.by_task[task].num_examples for result in results if task in result.by_task}
    return ", ".join(map(str, sorted(numbers)))


def _task_score(result: SuiteResult, task: str) -> str:
    found = result.by_task.get(task)
    return _percent(found.score, found.is_limited) if found else "-"


def _average(score: float | None, is_limited: bool) -> str:
    return "incomplete" if score is None else _percent(score, is_limited)


def _percent(score: float, is_limited: bool) -> str:
    return f"{100 * score:.1f}" + "\\*" * is_limited


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")

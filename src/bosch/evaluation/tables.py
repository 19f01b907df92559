"""Results of several models on one suite beside each other, for people and for spreadsheets."""

import csv
import io
from collections.abc import Iterator, Sequence

from bosch.errors import BoschError
from bosch.evaluation.results import Suite, SuiteResult

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


def to_csv(results: Sequence[SuiteResult]) -> str:
    """One line for each model and task, category and average; scores from 0 to 1, empty where there is none.

    Args:
        results: at least one, all of one suite.

    Raises:
        BoschError: they are of different suites.
    """
    _common_suite(results)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["model", "level", "name", "score", "num_examples", "is_limited", "missing"])
    for result in results:
        writer.writerows(_csv_rows(result))
    return buffer.getvalue()


def _csv_rows(result: SuiteResult) -> Iterator[list[object]]:
    missing: list[str] = []
    for category, tasks in result.suite.categories.items():
        for task in tasks:
            if found := result.by_task.get(task):
                yield [result.model, "task", task, found.score, found.num_examples, found.is_limited, ""]
        lacking = result.missing(category)
        missing += lacking
        score, is_limited = result.category_score(category), result.is_limited(category)
        yield [result.model, "category", category, score, "", is_limited, " ".join(lacking)]
    yield [result.model, "suite", result.suite.name, result.overall_score, "", result.is_limited(), " ".join(missing)]


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

"""Tables of needles: tasks and averages at each length, as the paper has them (B.6), and over all lengths."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from bosch.compare.intervals import wilson
from bosch.evaluation.needles import GENERATED, NLL, TEACHER_FORCED
from bosch.evaluation.results import SuiteResult, TaskResult
from bosch.evaluation.rows import Row, Rows
from bosch.evaluation.suites import NIAH
from bosch.evaluation.tables import LIMITED_NOTE
from bosch.tables import text_table

MEASURES = {TEACHER_FORCED: "teacher-forced", GENERATED: "generated"}
"""Scores that are shares of examples, and what a table calls them."""


def needle_tables(rows: Rows) -> list[str]:
    """For each measure that there is: a table for each length, and one over all lengths."""
    lines = []
    reach = {name: model["reach"] for name, model in rows.models.items()}
    for measure, words in MEASURES.items():
        found = [row for row in rows.of("niah") if measure in row.scores]
        lengths = list(dict.fromkeys(row.length for row in found))
        for length in lengths:
            lines += [f"## Needles at {length} tokens, {words}", ""]
            lines += [*_at_length([row for row in found if row.length == length], measure, reach), ""]
        if len(lengths) > 1:
            lines += [f"## Needles at all lengths, {words}", "", *_over_lengths(found, measure), ""]
    return [*lines, LIMITED_NOTE, ""] if any(row.is_limited for row in rows.of("niah")) else lines


def suite_result(rows: Sequence[Row], measure: str) -> SuiteResult:
    """One model's results at one length."""
    results = (TaskResult(row.task, row.scores[measure], row.num_examples, row.is_limited) for row in rows)
    return SuiteResult(NIAH, rows[0].target, tuple(results))


def by_target(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each model."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.target, []).append(row)
    return groups


def _at_length(rows: Sequence[Row], measure: str, reach: Mapping[str, int | None]) -> list[str]:
    tasks = [task for task in NIAH.tasks if any(row.task == task for row in rows)]
    results = [suite_result(found, measure) for found in by_target(rows).values()]
    categories = [
        name for name in NIAH.categories if any(result.category_score(name) is not None for result in results)
    ]
    means = [*categories, "total"] if len(categories) == len(NIAH.categories) else categories
    with_nll = measure == TEACHER_FORCED and all(NLL in row.scores for row in rows)
    header = [
        "model",
        *(task.removeprefix("niah_") for task in tasks),
        *means,
        "95 %",
        *["NLL"] * with_nll,
        "beyond reach",
    ]
    cells = []
    for result, found in zip(results, by_target(rows).values(), strict=True):
        scores = [result.by_task[task].score if task in result.by_task else None for task in tasks]
        averages = [result.category_score(name) for name in categories]
        averages += [result.overall_score] if "total" in means else []
        counts = [one.num_examples for one in result.tasks]
        pooled = sum(one.score * one.num_examples for one in result.tasks) / sum(counts)
        low, high = wilson(pooled, sum(counts))
        nll = [f"{fmean(row.scores[NLL] for row in found):.3f}"] if with_nll else []
        shown = [_percent(score, result.is_limited()) for score in (*scores, *averages)]
        cells.append(
            [result.model, *shown, f"{100 * low:.0f}-{100 * high:.0f}", *nll, _share_beyond(found, reach[result.model])]
        )
    return text_table(header, cells)


def _share_beyond(rows: Sequence[Row], reach: int | None) -> str:
    """Share of the needles that lie further back than a model sees if all its heads slide; only these test which do."""
    distances = [example["distance"] for row in rows for example in row.examples]
    if reach is None or not distances:
        return ""
    return f"{sum(distance > reach for distance in distances) / len(distances):.0%}"


def _over_lengths(rows: Sequence[Row], measure: str) -> list[str]:
    """The mean over the tasks at each length, and over all lengths."""
    lengths = sorted({row.length for row in rows if row.length is not None})
    cells = []
    for target, found in by_target(rows).items():
        means = [mean_at(found, length, measure) for length in lengths]
        known = [mean for mean in means if mean is not None]
        average = fmean(known) if len(known) == len(lengths) else None
        limited = any(row.is_limited for row in found)
        cells.append([target, *(_percent(mean, limited) for mean in (*means, average))])
    return text_table(["model", *map(str, lengths), "average"], cells)


def mean_at(rows: Sequence[Row], length: int, measure: str) -> float | None:
    """Unweighted mean over the tasks of one model at one length; None where there are none."""
    scores = [row.scores[measure] for row in rows if row.length == length and measure in row.scores]
    return fmean(scores) if scores else None


def _percent(score: float | None, is_limited: bool) -> str:
    return "-" if score is None else f"{100 * score:.1f}" + "\\*" * is_limited

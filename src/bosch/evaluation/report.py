"""An evaluation, told to people: tables of each group, a spreadsheet, and pictures."""

from collections.abc import Sequence

from bosch.common.files import as_written_by, read_json, take_fields, write_text
from bosch.common.tables import text_table, wilson
from bosch.evaluation.harness import GROUP as HARNESS
from bosch.evaluation.needle_report import by_target, draw_needles, needle_tables
from bosch.evaluation.needles import NLL, TEACHER_FORCED
from bosch.evaluation.part import SCORE
from bosch.evaluation.perplexity import bucket_names
from bosch.evaluation.results import LIMITED_NOTE, LONGBENCH, SuiteResult, TaskResult, to_markdown
from bosch.evaluation.rows import EvalDirectory, EvalRows, Row
from bosch.evaluation.settings import OWN, PERPLEXITY, EvalSettings


def write_report(directory: EvalDirectory, settings: EvalSettings, rows: EvalRows) -> None:
    """Write `rows.csv`, `report.md` and the pictures.

    Args:
        directory: where to.
        settings: of the evaluation.
        rows: all of them.
    """
    write_text(directory.csv, rows.to_csv())
    pictures = draw_needles(rows, directory.path) if rows.of("niah") else []
    run = read_json(directory.settings)
    with as_written_by("an evaluation", directory.settings):
        names = ("bosch", "torch", "transformers", "platform")
        origin = take_fields(run["provenance"], dict.fromkeys(names, str))
    lines = [
        f"# Evaluation of {', '.join(settings.targets)}",
        "",
        *_models(rows),
        "",
        f"Seed {settings.seed}, chat template {'used' if settings.chat else 'not used'}. bosch {origin['bosch']}, "
        f"torch {origin['torch']}, transformers {origin['transformers']}, {origin['platform']}.",
        "",
        *evaluated(rows),
        *(f"![{title}]({path.name})\n" for title, path in pictures),
    ]
    write_text(directory.report, "\n".join(lines).rstrip() + "\n")


def evaluated(rows: EvalRows) -> list[str]:
    """The tables of every group that there is."""
    tables = (
        needle_tables(rows),
        _longbench(rows),
        _perplexity(rows.of(PERPLEXITY)),
        _own(rows.of(OWN)),
        _harness(rows.of(HARNESS)),
    )
    return [line for lines in tables for line in lines]


def _models(rows: EvalRows) -> list[str]:
    header = ["model", "class", "sliding", "window", "sinks", "positions", "dtype"]
    cells = [
        [name, one["class"], *(_shown(one[key]) for key in ("ratio", "window", "sinks", "positions")), one["dtype"]]
        for name, one in rows.models.items()
    ]
    return text_table(header, cells)


def _shown(value: float | None) -> str:
    return "" if value is None else str(value)


def _longbench(rows: EvalRows) -> list[str]:
    found = rows.of("longbench")
    if not found:
        return []
    results = [
        SuiteResult(LONGBENCH, name, tuple(_task_result(row) for row in found if row.target == name))
        for name in rows.models
    ]
    return ["## LongBench and GSM8K", "", to_markdown([result for result in results if result.tasks])]


def _task_result(row: Row) -> TaskResult:
    return TaskResult(row.task, row.scores[SCORE], row.num_examples, row.is_limited)


def _perplexity(rows: Sequence[Row]) -> list[str]:
    lines = []
    for length in dict.fromkeys(row.length for row in rows):
        found = [row for row in rows if row.length == length]
        buckets = bucket_names(list(found[0].scores))
        cells = [
            [row.target, *(f"{row.scores[name]:.4f}" for name in ("nll", *(f"nll {bucket}" for bucket in buckets)))]
            for row in found
        ]
        title = f"## NLL of {found[0].num_examples} texts of {length} tokens, nats a token, by position"
        lines += [title, "", *text_table(["model", "all", *buckets], cells), ""]
    return lines


def _own(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    cells = []
    for row in rows:
        low, high = wilson(row.scores[TEACHER_FORCED], row.num_examples)
        cells.append(
            [row.target, f"{row.scores[TEACHER_FORCED]:.2f}", f"{low:.2f}-{high:.2f}", f"{row.scores[NLL]:.3f}"]
        )
    title = f"## Your own {rows[0].num_examples} examples"
    return [title, "", *text_table(["model", "accuracy", "95 %", "NLL"], cells), ""]


def _harness(rows: Sequence[Row]) -> list[str]:
    """A line for each score of lm-eval, a column for each model."""
    if not rows:
        return []
    models = list(by_target(rows))
    found = {
        (row.task, name, row.target): (score, row.is_limited) for row in rows for name, score in row.scores.items()
    }
    cells = []
    for task, name in dict.fromkeys((task, name) for task, name, _ in found):
        scores = [found.get((task, name, model)) for model in models]
        cells.append([f"{task}: {name}", *("-" if one is None else f"{one[0]:.4f}" + "\\*" * one[1] for one in scores)])
    lines = ["## lm-eval", "", *text_table(["score", *models], cells), ""]
    return [*lines, LIMITED_NOTE, ""] if any(row.is_limited for row in rows) else lines

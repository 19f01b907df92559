"""Every model on every task, each result kept as it comes."""

import contextlib
import dataclasses
import html
from collections.abc import Callable, Sequence
from pathlib import Path

from bosch.calibration import ExampleSet
from bosch.common.progress import Progress
from bosch.evaluation.part import LoadedModel, Part
from bosch.evaluation.parts import make_parts
from bosch.evaluation.report import evaluated, write_report
from bosch.evaluation.rows import EvalDirectory, EvalRows, Row
from bosch.evaluation.settings import EvalSettings
from bosch.evaluation.targets import Given, Target, at_windows, describe, given_targets, make_targets


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; it prints as its tables.

    Args:
        rows: scores of every model on every task.
        directory: where everything lies; None where nothing was written.
    """

    rows: EvalRows
    directory: EvalDirectory | None = None

    def table(self) -> str:
        """The tables of every group of tasks, in Markdown."""
        return "\n".join(evaluated(self.rows))

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table())}</pre>"


def evaluate(
    settings: EvalSettings,
    output: Path | None = None,
    *,
    given: Given | None = None,
    own: ExampleSet | None = None,
    overwrite: bool = False,
) -> Evaluation:
    """Evaluate; with an output directory, the same call goes on where it was stopped, after the last whole part.

    Args:
        settings: everything that determines the result.
        output: the evaluation's directory, in which everything is kept; None: nothing is written.
        given: a loaded model and its masks, in place of those that the settings name.
        own: examples for the task own, in place of a file.
        overwrite: replace another evaluation that is there.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    # Mistakes are said before a directory is made.
    targets = given_targets(settings.targets[0], given, settings.windows) if given else make_targets(settings)
    parts = make_parts(settings, own)
    directory = None if output is None else EvalDirectory(output)
    with contextlib.ExitStack() as stack:
        claim = stack.enter_context(directory.claimed(settings, overwrite=overwrite)) if directory else None
        rows = EvalRows.load(directory.rows) if directory and claim and not claim.is_new else EvalRows()
        progress = stack.enter_context(Progress())

        def keep(rows: EvalRows) -> None:
            if directory and claim:
                claim.begin()
                rows.save(directory.rows)

        for target in targets:
            rows = _measure_target(target, parts, settings, rows, progress, keep)
        if directory:
            write_report(directory, settings, rows)
    return Evaluation(rows, directory)


def _measure_target(
    target: Target,
    parts: Sequence[Part],
    settings: EvalSettings,
    rows: EvalRows,
    progress: Progress,
    keep: Callable[[EvalRows], None],
) -> EvalRows:
    """All rows, once those of one model are complete; it is loaded only if any are missing."""
    # Whether it is a hybrid, and so has rows at several windows, is not known before it is loaded.
    possible = ([target.name], [target.at(window) for window in settings.windows])
    if any(names and all(not _missing(rows, name, parts) for name in names) for names in possible):
        return rows
    with target.opened(settings) as (model, tokenizer):
        loaded = LoadedModel(model, tokenizer, progress)
        loaded.check_length(max(part.num_positions for part in parts))
        for name in at_windows(model, target, settings.windows):
            rows = rows.describe(name, describe(model, target.mask))
            for part in _missing(rows, name, parts):
                if part.num_examples:
                    progress.on_stage(f"{name}: {part.name}", part.num_examples)
                rows = rows.add(Row(name, part.group, part.task, part.length, **part.measure(loaded)))
                progress.close()
                keep(rows)
    return rows


def _missing(rows: EvalRows, name: str, parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if not rows.has(name, part.task, part.length)]

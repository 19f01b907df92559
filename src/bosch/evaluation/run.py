"""Every model on every task, each result kept as it comes."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from bosch.deploy.opening import open_target
from bosch.evaluation.directory import EvalDirectory
from bosch.evaluation.part import Part, Subject
from bosch.evaluation.parts import make_parts
from bosch.evaluation.report import write_report
from bosch.evaluation.rows import Row, Rows
from bosch.evaluation.settings import EvalSettings
from bosch.evaluation.targets import Target, at_windows, describe, make_targets
from bosch.experiment.directory import open_directory
from bosch.experiment.progress import Progress


def evaluate(settings: EvalSettings, output: Path, *, overwrite: bool = False) -> EvalDirectory:
    """Evaluate; the same call on the same directory goes on where it was stopped, after the last whole part.

    Args:
        settings: everything that determines the result.
        output: the evaluation's directory.
        overwrite: replace another evaluation that is there.

    Returns:
        The directory: `rows.json`, `rows.csv`, `report.md` and pictures.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    targets, parts = make_targets(settings), make_parts(settings)  # mistakes are said before a directory is made
    directory = EvalDirectory(output)
    open_directory(directory, settings, overwrite=overwrite)
    rows = Rows.load(directory.rows)
    with contextlib.closing(Progress()) as progress:
        for target in targets:
            rows = _measure_target(target, parts, settings, directory, rows, progress)
    write_report(directory, settings, rows)
    return directory


def _measure_target(
    target: Target,
    parts: Sequence[Part],
    settings: EvalSettings,
    directory: EvalDirectory,
    rows: Rows,
    progress: Progress,
) -> Rows:
    """All rows, once those of one model are complete; it is loaded only if any are missing."""
    # Whether it is a hybrid, and so has rows at several windows, is not known before it is loaded.
    possible = ([target.name], [target.at(window) for window in settings.windows])
    if any(names and all(not _missing(rows, name, parts) for name in names) for names in possible):
        return rows
    model, tokenizer = open_target(
        target.source,
        dtype=settings.dtype,
        device=settings.device,
        trust_remote_code=settings.trust_remote_code,
        yarn=settings.yarn,
    )
    subject = Subject(model, tokenizer, progress)
    subject.check_length(max(part.num_positions for part in parts))
    for name in at_windows(model, target, settings.windows):
        rows = rows.describe(name, describe(model))
        for part in _missing(rows, name, parts):
            if part.num_examples:
                progress.on_stage(f"{name}: {part.name}", part.num_examples)
            rows = rows.add(Row(name, part.group, part.task, part.length, **part.measure(subject)))
            progress.close()
            rows.save(directory.rows)
    return rows


def _missing(rows: Rows, name: str, parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if not rows.has(name, part.task, part.length)]

"""The original and every hybrid at every context length, each model in a process of its own."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bosch.bench.children import OutOfMemoryError, run_job
from bosch.bench.report import write_report
from bosch.bench.rows import ORIGINAL, BenchDirectory, BenchRows, read_rows, write_rows
from bosch.bench.settings import BenchSettings, Variant, make_variants
from bosch.bench.worker import Job
from bosch.common.progress import Progress
from bosch.common.provenance import provenance
from bosch.errors import BoschError
from bosch.heads import HeadLayout

Reply = dict[str, Any]


def bench(settings: BenchSettings, output: Path, *, overwrite: bool = False) -> BenchDirectory:
    """Measure; the same call on the same directory goes on where it was stopped.

    Args:
        settings: all that determines what is measured.
        output: the benchmark's directory.
        overwrite: replace another benchmark that is there, or the same of another machine or other versions.

    Returns:
        The directory: `rows.json`, `rows.csv`, `report.md` and a picture.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    variants = make_variants(settings)  # what is wrong with a mask is said before a directory is made
    directory = BenchDirectory(output)
    with directory.claimed(settings, overwrite=overwrite) as claim:
        origin = {**provenance(), **_describe_mask(variants)}
        rows = known = read_rows(directory, claim, origin, overwrite=overwrite)
        with Progress() as progress:
            progress.on_stage("rows", len(set(settings.contexts)) * (1 + len(variants)), done=len(rows.rows))
            for rows in _measure_all(settings, variants, known, progress.describe):
                claim.begin()
                write_rows(directory, settings, rows)
                progress.advance()
        write_report(directory, settings, rows)
    return directory


def _describe_mask(variants: Sequence[Variant]) -> dict[str, str]:
    """The hash of a given mask: another file of the same name is another benchmark."""
    masks = [variant.mask for variant in variants if variant.mask]
    return {"mask_sha256": hashlib.sha256(repr(masks[0]).encode()).hexdigest()} if masks else {}


def _measure_all(
    settings: BenchSettings, variants: Sequence[Variant], rows: BenchRows, on_model: Callable[[str], object]
) -> Iterator[BenchRows]:
    """All rows after each new one, those of the original first.

    Args:
        settings: of the benchmark.
        variants: the hybrids.
        rows: so far.
        on_model: is told the name of each model before it is measured.
    """
    for variant in (None, *variants):
        name = variant.name if variant else ORIGINAL
        missing = tuple(context for context in sorted(set(settings.contexts)) if rows.at(name, context) is None)
        if not missing:
            continue
        on_model(name)
        mask = variant.make_mask(_layout(rows.model), settings.seed) if variant else None
        with contextlib.closing(run_job(Job(settings, missing, mask))) as replies:
            rows = dataclasses.replace(rows, model=_receive_model(replies, rows, variants))
            for context, measured in _outcomes(replies, missing):
                rows = rows.add(name, mask, context, measured)
                yield rows


def _layout(model: Mapping[str, Any]) -> HeadLayout:
    return HeadLayout(tuple(model["units_per_layer"]))


def _receive_model(replies: Iterator[Reply], rows: BenchRows, variants: Sequence[Variant]) -> dict[str, Any]:
    """What the child says the original model is.

    Raises:
        BoschError: it is not that of the rows so far, the given mask is not for it, or it does not fit in memory.
    """
    try:
        model = next(replies)["model"]
    except OutOfMemoryError:
        raise BoschError("out of memory before the first context: the model alone does not fit") from None
    for name, value in (rows.model or model).items():
        if model.get(name) != value:
            raise BoschError(
                f"the rows so far are of a model with {name} {value!r}, now it is {model.get(name)!r}; "
                "choose another directory"
            )
    for variant in variants:
        variant.make_mask(_layout(model), seed=0)
    return model


def _outcomes(replies: Iterator[Reply], contexts: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
    """What was measured at each context; None from where the memory did not suffice."""
    for number, context in enumerate(contexts):
        try:
            measured = next(replies)["measurement"]
        except OutOfMemoryError:
            yield from ((longer, None) for longer in contexts[number:])
            return
        assert measured["context"] == context
        yield context, measured

"""The rows of a benchmark: one for each model and context length, written as they come."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bosch.bench.settings import BenchSettings
from bosch.common.files import Kinds, as_written_by, read_json, take_fields, write_json
from bosch.common.output import Claim, RowsDirectory
from bosch.common.tables import write_csv
from bosch.errors import BoschError
from bosch.heads import HeadMask


@dataclasses.dataclass(frozen=True)
class BenchDirectory(RowsDirectory):
    """Where a benchmark keeps everything it makes."""

    schema = "bosch.bench/1"
    called = "benchmark"
    results = ("report.md", "bench.png", "bench.svg", "rows.csv", "rows.json")


MEASURED = ("prefill_tokens_per_s", "decode_tokens_per_s", "peak_memory_bytes", "cache_bytes")
COLUMNS = ("name", "ratio", "window", "sinks", "context", "status", *MEASURED)
NUMBER = (int, float, type(None))
ORIGINAL = "original"
OUT_OF_MEMORY = "out of memory"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class BenchRows:
    """All rows so far.

    Args:
        provenance: of all of them: versions, machine, and the hash of a given mask.
        model: what the original model is and where it runs; empty before the first row.
        rows: the original's first.
    """

    provenance: Mapping[str, Any]
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    def at(self, name: str, context: int) -> Row | None:
        """The row of a model at a context length, if it is there."""
        return next((row for row in self.rows if (row["name"], row["context"]) == (name, context)), None)

    def add(self, name: str, mask: HeadMask | None, context: int, measured: Mapping[str, Any] | None) -> "BenchRows":
        """With one more row.

        Args:
            name: of the model.
            mask: of the hybrid; None: the original.
            context: in tokens.
            measured: a number for each of `MEASURED`; None: out of memory.
        """
        numbers: Row = {key: measured and measured[key] for key in MEASURED}
        original = numbers if mask is None else self.at(ORIGINAL, context) or {}
        row = {
            "name": name,
            "ratio": mask.ratio if mask else 0.0,
            "window": mask and mask.shown_window,
            "sinks": mask and mask.sinks,
            "mask": mask and mask.key(),
            "context": context,
            "status": "measured" if measured else OUT_OF_MEMORY,
            **numbers,
            "to_original": {key: _quotient(numbers[key], original.get(key)) for key in MEASURED},
        }
        return dataclasses.replace(self, rows=(*self.rows, row))


def _quotient(number: float | None, original: float | None) -> float | None:
    return number / original if number and original else None


def write_rows(directory: BenchDirectory, settings: BenchSettings, rows: BenchRows) -> None:
    """Write `rows.csv` and `rows.json`, each atomically.

    Raises:
        BoschError: they cannot be written.
    """
    data = {"schema": directory.schema, "settings": dataclasses.asdict(settings), **dataclasses.asdict(rows)}
    header = [*COLUMNS, *(f"{name}_to_original" for name in MEASURED)]
    cells = ([*(row[name] for name in COLUMNS), *(row["to_original"][name] for name in MEASURED)] for row in rows.rows)
    write_csv(directory.csv, header, cells)
    write_json(directory.rows, data)  # last, as a row that is in it is never measured, nor written, again


def read_rows(directory: BenchDirectory, claim: Claim, provenance: Mapping[str, Any], *, overwrite: bool) -> BenchRows:
    """The rows that were measured before; none where nothing was, or nothing of these settings.

    Args:
        directory: of the benchmark.
        claim: of the directory.
        provenance: of the rows to come, which will stand beside those.
        overwrite: replace rows of another provenance.

    Raises:
        BoschError: their provenance is another but for the time, or the file is not what `write_rows` wrote.
    """
    if claim.is_new or not directory.rows.exists():
        return BenchRows(provenance)
    found = _read(directory)
    for name, value in provenance.items():
        if name != "time" and found.provenance.get(name) != value:
            if overwrite:
                claim.is_new = True
                return BenchRows(provenance)
            raise BoschError(
                f"{directory.path} was measured with {name} {found.provenance.get(name)!r}, now it is {value!r}, and "
                "the two would not compare; choose another directory or --overwrite"
            )
    return found


def _read(directory: BenchDirectory) -> BenchRows:
    found = read_json(directory.rows)
    with as_written_by("a benchmark", directory.rows):
        data = take_fields(found, {"schema": str, "provenance": dict, "model": dict, "rows": list})
        if data["schema"] != directory.schema:
            raise BoschError(f"expected the schema {directory.schema!r}, found {data['schema']!r}")
        return BenchRows(data["provenance"], data["model"], tuple(map(_check_row, data["rows"])))


def _check_row(data: Any) -> Row:
    """A row that was read.

    Raises:
        BoschError: a field is missing or of another type.
    """
    numbers: Kinds = dict.fromkeys(MEASURED, NUMBER)
    kinds: Kinds = {
        "name": str,
        "ratio": NUMBER,
        "window": NUMBER,
        "sinks": NUMBER,
        "mask": (str, type(None)),
        "context": int,
    }
    row = take_fields(data, {**kinds, "status": str, **numbers, "to_original": dict})
    take_fields(row["to_original"], numbers)
    return row

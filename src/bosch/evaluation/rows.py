"""What an evaluation has found so far, kept in `rows.json`: a row for each model, task and length."""

import csv
import dataclasses
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bosch.common.files import as_written_by, read_json, take_fields, write_json
from bosch.common.output import RowsDirectory
from bosch.errors import BoschError


@dataclasses.dataclass(frozen=True)
class EvalDirectory(RowsDirectory):
    """Where an evaluation keeps everything it makes."""

    schema = "bosch.eval/1"
    called = "evaluation"
    results = ("report.md", "eval-*.png", "eval-*.svg", "rows.csv", "rows.json")
    resources = frozenset({"batch_tokens"})
    renamed = {"data": "benchmarks"}  # noqa: RUF012 - nobody writes to it


ROWS_SCHEMA = "bosch.eval-rows/1"


@dataclasses.dataclass(frozen=True)
class Row:
    """The scores of one model on one task.

    Args:
        target: name of the model.
        group: what the task is reported with, such as "niah".
        task: its name.
        length: in tokens, where the task has one.
        scores: by name; what they mean is the group's matter.
        num_examples: how many examples, at least 1.
        is_limited: only the task's first examples were asked, so that the scores are no result.
        examples: of each example what the report needs.
    """

    target: str
    group: str
    task: str
    length: int | None
    scores: Mapping[str, float]
    num_examples: int
    is_limited: bool = False
    examples: tuple[Mapping[str, Any], ...] = ()


def _parse_row(data: Any) -> Row:
    """A row from plain data.

    Raises:
        BoschError: a field is missing or of another type.
    """
    kinds = {"target": str, "group": str, "task": str, "scores": dict, "num_examples": int, "is_limited": bool}
    take_fields(data, {**kinds, "examples": list})
    for name, value in [("length", data.get("length")), *data["scores"].items()]:
        if type(value) not in ((int, type(None)) if name == "length" else (int, float)):
            raise BoschError(f"{name} must be a number, found {value!r:.40}")
    if data["num_examples"] < 1:
        raise BoschError(f"num_examples must be at least 1, found {data['num_examples']}")
    for example in data["examples"]:
        take_fields(example, {**dict.fromkeys(example, (bool, int, float)), "depth": (int, float), "distance": int})
        if not 0 <= example["depth"] <= 1:
            raise BoschError(f"the depth of a needle must be from 0 to 1, found {example['depth']}")
    return Row(**{**data, "examples": tuple(data["examples"])})


@dataclasses.dataclass(frozen=True)
class EvalRows:
    """All rows, and what is known of each model.

    Args:
        models: for each name the facts that must not change while its rows are collected.
        rows: in the order in which they were measured.
    """

    models: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    def has(self, target: str, task: str, length: int | None) -> bool:
        """Whether this was measured."""
        return any((row.target, row.task, row.length) == (target, task, length) for row in self.rows)

    def add(self, row: Row) -> "EvalRows":
        """With one more row.

        Raises:
            BoschError: a score is not finite.
        """
        for name, value in row.scores.items():
            if not math.isfinite(value):
                raise BoschError(
                    f"the {name} of {row.target} on {row.task} is {value}: the model's logits are not finite; expected "
                    "weights without NaN, in a dtype that holds what they compute"
                )
        return dataclasses.replace(self, rows=(*self.rows, row))

    def describe(self, target: str, facts: Mapping[str, Any]) -> "EvalRows":
        """With the facts of a model.

        Raises:
            BoschError: it has rows already, of a model with other facts.
        """
        for name, value in self.models.get(target, facts).items():
            if facts.get(name) != value:
                raise BoschError(
                    f"the rows of {target} so far are of a model with {name} {value!r}, now it is {facts.get(name)!r}; "
                    "choose another directory or --overwrite"
                )
        return dataclasses.replace(self, models={**self.models, target: facts})

    def of(self, group: str) -> tuple[Row, ...]:
        """The rows of one group."""
        return tuple(row for row in self.rows if row.group == group)

    def save(self, path: Path) -> None:
        """Write JSON, atomically.

        Raises:
            BoschError: the file cannot be written.
        """
        rows = [dataclasses.asdict(row) for row in self.rows]
        write_json(path, {"schema": ROWS_SCHEMA, "models": self.models, "rows": rows})

    @classmethod
    def load(cls, path: Path) -> "EvalRows":
        """What `save` wrote; no rows where there is no file.

        Raises:
            BoschError: the file is no such file.
        """
        if not path.exists():
            return cls()
        data = read_json(path)
        with as_written_by("an evaluation", path):
            if data["schema"] != ROWS_SCHEMA:
                raise BoschError(f"expected the schema {ROWS_SCHEMA!r}, found {data['schema']!r}")
            rows = tuple(_parse_row(row) for row in data["rows"])
            found = cls({name: {**facts} for name, facts in data["models"].items()}, rows)
            found.to_csv()  # every row's model is there, with what is shown of it
        return found

    def to_csv(self) -> str:
        """A line for each score."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        header = ("model", "ratio", "window", "group", "task", "length", "score", "value", "num_examples", "is_limited")
        writer.writerow(header)
        for row in self.rows:
            model = self.models[row.target]
            where = [row.target, model["ratio"], model["window"], row.group, row.task, row.length]
            writer.writerows([*where, *score, row.num_examples, row.is_limited] for score in row.scores.items())
        return text.getvalue()

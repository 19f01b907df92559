"""LongBench's data as it is published: a file of JSON lines for each task."""

import dataclasses
from pathlib import Path
from typing import Any

from bosch.errors import BoschError
from bosch.evaluation.jsonlines import read_json_lines, take_fields


@dataclasses.dataclass(frozen=True)
class Document:
    """One example of a task.

    Args:
        context: the long text.
        input: the question or instruction that goes with it; empty where the task has only one.
        answers: references, at least one.
        classes: names of all classes where the task is to classify, else empty.
    """

    context: str
    input: str
    answers: tuple[str, ...]
    classes: tuple[str, ...] = ()


def read_documents(directory: Path, task: str, limit: int | None = None) -> tuple[Document, ...]:
    """The documents of a task from `directory/<task>.jsonl`, in the order of the file.

    Args:
        directory: where the benchmark's `data.zip` was unpacked.
        task: the task's name.
        limit: so many from the beginning, at least 1; by default all.

    Raises:
        BoschError: the file is missing, unreadable or empty, or a line is not as published; the line is named.
    """
    origin = "unpack LongBench's data.zip (data set THUDM/LongBench) there; it holds a file for each task"
    return read_json_lines(directory / f"{task}.jsonl", lambda data: _document(data, task), origin=origin, limit=limit)


def _document(data: Any, task: str) -> Document:
    kinds = {"context": str, "input": str, "answers": list, "dataset": str}
    fields = take_fields(data, kinds)
    if fields["dataset"] != task:
        raise BoschError(f"it is of the data set {fields['dataset']!r:.40}, expected {task!r}")
    answers, classes = fields["answers"], data.get("all_classes") or []
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise BoschError(f"answers must be a list of at least one text, found {answers!r:.40}")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise BoschError(f"all_classes must be null or a list of texts, found {classes!r:.40}")
    return Document(fields["context"], fields["input"], tuple(answers), tuple(classes))

"""Small files of the published layouts."""

import json
from pathlib import Path
from typing import Any


def write_lines(path: Path, lines: list[Any]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


def document(task: str, **changes: Any) -> dict[str, Any]:
    """A line of LongBench's files, with every field that they have."""
    published = {
        "input": "Who wrote it?",
        "context": "A book. Ann wrote it.",
        "answers": ["Ann", "Ann Lee"],
        "length": 5,
        "dataset": task,
        "language": "en",
        "all_classes": None,
        "_id": "0f",
    }
    return published | changes


def problem(number: int) -> dict[str, str]:
    """A line of GSM8K's files."""
    return {"question": f"What is {number}?", "answer": f"It is {number}.\n#### {number}"}

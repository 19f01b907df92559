"""Examples: prompts with the tokens of their answers, and sets of them that are fingerprinted and stored as data."""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bosch.errors import BoschError
from bosch.files import write_text

EXAMPLES_SCHEMA = "bosch.examples/1"


@dataclasses.dataclass(frozen=True)
class Example:
    """One prompt and its answer.

    Args:
        input_ids: token ids of prompt and answer together; token `t` is predicted at position `t - 1`.
        answer_start: index of the answer's first token.
        needle_start: index of the first token of the needle that is asked for.
        task: name of the task.
        length: the number of tokens that was asked for; `input_ids` has as many, or less than one haystack unit fewer.
        depth: where in the haystack the needle lies, to the nearest place that it fits: 0 = first, 1 = last.
        prompt: the text that the model is sent, ending with the answer prefix.
        answer: the text that follows it, after one space.
    """

    input_ids: tuple[int, ...]
    answer_start: int
    needle_start: int
    task: str
    length: int
    depth: float
    prompt: str
    answer: str

    @property
    def num_answer_tokens(self) -> int:
        """Tokens that are scored."""
        return len(self.input_ids) - self.answer_start

    @property
    def distance(self) -> int:
        """Tokens from the start of the needle to the end of the question: how far back a head must look."""
        return self.answer_start - self.needle_start

    @classmethod
    def from_json(cls, data: Any) -> "Example":
        """An example from plain data.

        Raises:
            BoschError: anything is missing, of the wrong type or out of range.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if not isinstance(data, dict) or data.keys() != fields.keys():
            raise BoschError(f"an example must be an object with exactly {', '.join(fields)}")
        for name, kind in _JSON_TYPES.items():
            if type(data[name]) is not kind:
                raise BoschError(f"an example's {name} must be of type {kind.__name__}, got {data[name]!r:.40}")
        ids = data["input_ids"]
        if not all(type(token) is int and token >= 0 for token in ids):
            raise BoschError("an example's input_ids must be non-negative integers")
        if not 0 <= data["needle_start"] < data["answer_start"] < len(ids) <= data["length"]:
            raise BoschError(
                "an example needs 0 <= needle_start < answer_start < number of tokens <= length, got "
                f"{data['needle_start']}, {data['answer_start']}, {len(ids)}, {data['length']}"
            )
        if not 0 <= data["depth"] <= 1:
            raise BoschError(f"an example's depth must lie in [0, 1], got {data['depth']}")
        return cls(**{**data, "input_ids": tuple(ids)})


_JSON_TYPES: Mapping[str, type] = {
    "input_ids": list,
    "answer_start": int,
    "needle_start": int,
    "task": str,
    "length": int,
    "depth": float,
    "prompt": str,
    "answer": str,
}


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """Examples in a fixed order, in which every beginning is balanced over tasks and lengths.

    Args:
        examples: at least one.
        settings: what they were made with, as plain data: tasks, lengths, seed, split, tokenizer, haystack, chat.

    Raises:
        BoschError: there is no example.
    """

    examples: tuple[Example, ...]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.examples:
            raise BoschError("a set of examples needs at least one example, got none")

    def __len__(self) -> int:
        return len(self.examples)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the examples' content, as hexadecimal digits: equal exactly where every example is equal."""
        lines = (json.dumps(vars(example), sort_keys=True) for example in self.examples)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def by_task_and_length(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """The positions in `examples` of each (task, length), in the order of their first example."""
        groups: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
        for position, example in enumerate(self.examples):
            groups[example.task, example.length].append(position)
        return {group: tuple(positions) for group, positions in groups.items()}

    def accuracy_by_task(self, hits: Sequence[bool]) -> dict[str, float]:
        """Share of hits of each task and length, by names like "niah_single_1 @ 512"; one hit or miss an example."""
        return {
            f"{task} @ {length}": sum(hits[member] for member in members) / len(members)
            for (task, length), members in self.by_task_and_length().items()
        }

    def share_beyond(self, num_tokens: int) -> float:
        """Share of examples whose needle lies further back from the question's end than so many tokens.

        A stack of L layers that all slide still reaches back `L * (W - 1)` tokens (plus the sinks), hopping from layer
        to layer: only the examples beyond that test the choice of heads on long range.
        """
        return sum(example.distance > num_tokens for example in self.examples) / len(self)

    def save(self, path: Path) -> None:
        """Write JSON lines, atomically: the settings and the fingerprint first, then one example a line.

        Raises:
            BoschError: the file cannot be written.
        """
        head = {"schema": EXAMPLES_SCHEMA, "fingerprint": self.fingerprint, "settings": dict(self.settings)}
        lines = [head, *map(vars, self.examples)]
        write_text(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))

    @classmethod
    def load(cls, path: Path) -> "ExampleSet":
        """Read what `save` wrote, as data; nothing in it is executed.

        Raises:
            BoschError: the file cannot be read, is not such a file, or is not the one that was written.
        """
        try:
            head, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] or [None]
            if not isinstance(head, dict) or head.get("schema") != EXAMPLES_SCHEMA:
                raise BoschError(f"not a file of examples: its first line must have the schema {EXAMPLES_SCHEMA!r}")
            if not isinstance(head.get("settings"), dict):
                raise BoschError("the first line must have settings, as an object")
            loaded = cls(tuple(map(Example.from_json, lines)), head["settings"])
            if loaded.fingerprint != head.get("fingerprint"):
                raise BoschError("the examples do not match their fingerprint; the file was changed after it was made")
            return loaded
        except OSError as error:
            raise BoschError(f"{path}: cannot read it: {error.strerror or error}") from None
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise BoschError(f"{path}: not valid JSON lines: {error}") from None
        except BoschError as error:
            raise BoschError(f"{path}: {error}") from None

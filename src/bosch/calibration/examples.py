"""Examples: prompts with the tokens of their answers, and sets of them with a fingerprint."""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bosch.errors import BoschError


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

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    def __getitem__(self, position: int) -> Example:
        return self.examples[position]

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the examples' content, as hexadecimal digits: equal exactly where every example is equal."""
        lines = (json.dumps(vars(example), sort_keys=True) for example in self)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def by_task_and_length(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """The positions in `examples` of each (task, length), in the order of their first example."""
        groups: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
        for position, example in enumerate(self):
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
        return sum(example.distance > num_tokens for example in self) / len(self)

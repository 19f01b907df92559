"""Making examples: balanced over tasks and lengths, fitted to the token, reproducible from a seed."""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bosch.calibration.examples import Example, ExampleSet
from bosch.calibration.haystack import (
    NOISE,
    SEPARATORS,
    Segment,
    cut,
    insert,
    prose_segments,
    shipped_prose,
    split_prose,
)
from bosch.calibration.items import SPLITS, Split, draw_items
from bosch.calibration.tasks import TASKS, Task
from bosch.calibration.tokens import Tokens, check_tokenizer, render, tokenize
from bosch.errors import BoschError
from bosch.registry import lookup

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def make_examples(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    tasks: Sequence[str],
    lengths: Sequence[int],
    num_examples: int,
    seed: int,
    split: Split = "calibration",
    haystack_text: str | None = None,
    chat: bool = False,
) -> ExampleSet:
    """Needle-in-a-haystack examples for a tokenizer.

    Examples are dealt to the (task, length) combinations in turn, so that their numbers differ by at most one and a
    beginning of the set is balanced as well. Within a combination the needles' depths are evenly spaced, and shifted
    from one combination to the next. The two splits never share a key or a value, whatever the seeds.

    Args:
        tokenizer: the model's; a fast one.
        tasks: names out of `TASKS`.
        lengths: tokens of an example, its answer included; an example falls short of it by less than one haystack unit.
        num_examples: in all, at least 1.
        seed: another seed, other examples.
        split: "calibration" or "heldout".
        haystack_text: prose to hide needles in; None = the text that the package ships.
        chat: send the question through the tokenizer's chat template, and begin the assistant's turn for it.

    Raises:
        BoschError: an unknown task or split, no tasks, lengths or examples, a length that is too short for a task, a
            haystack text without words, a tokenizer that is not fast or has no chat template where one is needed.
    """
    chosen = [lookup("task", name, TASKS) for name in dict.fromkeys(tasks)]
    lengths = list(dict.fromkeys(lengths))
    lookup("split", split, SPLITS)
    _check_counts(len(chosen), lengths, num_examples)
    check_tokenizer(tokenizer, chat)
    text = shipped_prose() if haystack_text is None else haystack_text
    sentences = split_prose(text)
    examples = [
        _make_example(
            tokenizer,
            task,
            length,
            depth,
            _Source(f"{split}/{seed}/{task.name}/{length}/{index}", split, sentences),
            chat,
        )
        for task, length, index, depth in _plan(chosen, lengths, num_examples, random.Random(f"plan/{split}/{seed}"))
    ]
    settings = {
        "tasks": [task.name for task in chosen],
        "lengths": lengths,
        "num_examples": num_examples,
        "seed": seed,
        "split": split,
        "tokenizer": tokenizer.name_or_path,
        "haystack_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "chat": chat,
    }
    return ExampleSet(tuple(examples), settings)


def _check_counts(num_tasks: int, lengths: Sequence[int], num_examples: int) -> None:
    if not num_tasks:
        raise BoschError(f"no task was given; known: {', '.join(TASKS)}")
    if not lengths:
        raise BoschError("no length was given; give at least one number of tokens")
    for length in lengths:
        if type(length) is not int or length < 1:
            raise BoschError(f"a length must be an integer of at least 1 token, got {length!r}")
    if type(num_examples) is not int or num_examples < 1:
        raise BoschError(f"the number of examples must be an integer of at least 1, got {num_examples!r}")


def _plan(
    tasks: Sequence[Task], lengths: Sequence[int], num_examples: int, rng: random.Random
) -> Iterator[tuple[Task, int, int, float]]:
    """Task, length, index within that combination, and depth of each example.

    With C combinations of n examples each, the C * n depths are all different and evenly spaced, as are the n of one.
    """
    # Diagonal by diagonal, so that the first max(tasks, lengths) combinations already hold every task and every length.
    combinations = [
        (task, lengths[(column + shift) % len(lengths)])
        for shift in range(len(lengths))
        for column, task in enumerate(tasks)
    ]
    count = len(combinations)
    shifts = rng.sample(range(count), count)
    sizes = [len(range(first, num_examples, count)) for first in range(count)]
    orders = [rng.sample(range(size), size) for size in sizes]
    for position in range(num_examples):
        index, column = divmod(position, count)
        depth = (orders[column][index] + (shifts[column] + 0.5) / count) / sizes[column]
        yield *combinations[column], index, depth


class _Source:
    """Everything random of one example, in named streams that can be read again from their start."""

    def __init__(self, name: str, split: Split, sentences: Sequence[Segment]) -> None:
        self._name, self._split, self._sentences = name, split, sentences

    def stream(self, part: str) -> random.Random:
        return random.Random(f"{self._name}/{part}")

    def pairs(self, task: Task) -> Iterator[tuple[str, str]]:
        """Keys and values: those of the task's needles first, then those of the haystack's lines."""
        keys = draw_items(task.key, self._split, self.stream("keys"))
        return zip(keys, draw_items(task.value, self._split, self.stream("values")), strict=False)

    def segments(self, task: Task) -> Iterator[Segment]:
        """The task's haystack, from its start."""
        if task.haystack == "noise":
            return itertools.repeat(NOISE)
        if task.haystack == "prose":
            return prose_segments(self._sentences, self.stream("start").randrange(len(self._sentences)))
        others = itertools.islice(self.pairs(task), task.num_keys, None)
        return ((task.needle(key, value),) for key, value in others)


def _make_example(
    tokenizer: "PreTrainedTokenizerBase", task: Task, length: int, depth: float, source: _Source, chat: bool
) -> Example:
    pairs = list(itertools.islice(source.pairs(task), task.num_keys))
    key, answer = pairs[0]
    needles = [task.needle(*pair) for pair in pairs]
    stream = source.stream("depths")
    depths = [depth, *(stream.random() for _ in needles[1:])]

    def prompt(num_units: int) -> str:
        texts = insert(cut(source.segments(task), num_units), needles, depths)
        return render(tokenizer, task, SEPARATORS[task.haystack].join(texts), key, chat)

    @functools.cache
    def tokens(num_units: int) -> Tokens:
        return tokenize(tokenizer, prompt(num_units), answer)

    least = len(tokens(0).ids)
    if least > length:
        raise BoschError(
            f"length {length} is too short for {task.name}: question, needles and answer alone take {least} tokens"
        )
    num_units = largest_fit(lambda count: len(tokens(count).ids), length)
    text, found = prompt(num_units), tokens(num_units)
    return Example(
        input_ids=found.ids,
        answer_start=found.answer_start,
        needle_start=found.index_at(text.index(needles[0])),
        task=task.name,
        length=length,
        depth=depth,
        prompt=text,
        answer=answer,
    )


def largest_fit(num_tokens: Callable[[int], int], length: int) -> int:
    """The largest number of units that fits: `num_tokens(n) <= length < num_tokens(n + 1)`.

    Units take about the same number of tokens each, so the search interpolates, which takes some five looks at any
    length where halving would take fifteen; both neighbours are measured in the end.

    Args:
        num_tokens: tokens of an example with so many units, growing with them; `num_tokens(0)` must fit.
        length: tokens that may be used.
    """
    fits, used = 0, num_tokens(0)
    too_many = length + 1
    tokens_per_unit = float("inf")
    while too_many - fits > 1:
        step = min(max(int((length - used) / tokens_per_unit), 1), too_many - fits - 1)
        tokens = num_tokens(fits + step)
        # From 0 to length + 1 the bracket only shrinks; a unit that took no token at all must not divide by zero.
        tokens_per_unit = max((tokens - used) / step, 1e-3)
        if tokens <= length:
            fits, used = fits + step, tokens
        else:
            too_many = fits + step
    return fits

"""Making examples: balanced over tasks and lengths, fitted to the token, reproducible from a seed."""

import functools
import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bosch.calibration.draft import Draft
from bosch.calibration.examples import Example, ExampleSet
from bosch.calibration.haystack import shipped_prose, split_prose
from bosch.calibration.items import SPLITS, Split
from bosch.calibration.tasks import TASKS, NeedleTask
from bosch.calibration.tokens import Tokens, check_tokenizer, render, tokenize
from bosch.common.lookup import lookup
from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def largest_fit(num_tokens: Callable[[int], int], length: int) -> int:
    """The largest number of units that fits: `num_tokens(n) <= length < num_tokens(n + 1)`.

    Units take about the same number of tokens each, so the search interpolates: some six looks at any length, where
    halving would take fifteen. Both neighbours are measured in the end, so that the answer is exact.

    Args:
        num_tokens: tokens of a text with so many units, growing with them by at least one each.
        length: tokens that may be used; `num_tokens(0)` must fit.
    """
    fits, used = 0, num_tokens(0)
    assert used <= length
    too_many = length + 1
    tokens_per_unit = float("inf")
    while too_many - fits > 1:
        step = min(max(int((length - used) / tokens_per_unit), 1), too_many - fits - 1)
        tokens = num_tokens(fits + step)
        tokens_per_unit = max((tokens - used) / step, 1e-3)  # a unit that merged away must not divide by zero
        if tokens <= length:
            fits, used = fits + step, tokens
        else:
            too_many = fits + step
    return fits


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
    examples = []
    for task, length, index, depth in _plan(chosen, lengths, num_examples, random.Random(f"plan/{split}/{seed}")):
        draft = Draft(f"{split}/{seed}/{task.name}/{length}/{index}", task, split, depth, sentences)
        examples.append(_make_example(tokenizer, task, draft, length, depth, chat))
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
    tasks: Sequence[NeedleTask], lengths: Sequence[int], num_examples: int, rng: random.Random
) -> Iterator[tuple[NeedleTask, int, int, float]]:
    """Task, length, index within that combination, and depth of each example.

    With C combinations of n examples each, the C * n depths are all different and evenly spaced, as are the n of one.
    """
    # Both advance at each step, so that any beginning holds as many tasks and as many lengths as it can.
    num_tasks, num_lengths = len(tasks), len(lengths)
    period = math.lcm(num_tasks, num_lengths)
    combinations = [
        (tasks[step % num_tasks], lengths[(step + step // period) % num_lengths])
        for step in range(min(num_tasks * num_lengths, num_examples))
    ]
    count = len(combinations)
    shifts = rng.sample(range(count), count)
    sizes = [len(range(first, num_examples, count)) for first in range(count)]
    orders = [rng.sample(range(size), size) for size in sizes]
    for position in range(num_examples):
        index, column = divmod(position, count)
        depth = (orders[column][index] + (shifts[column] + 0.5) / count) / sizes[column]
        yield *combinations[column], index, depth


def _make_example(
    tokenizer: "PreTrainedTokenizerBase", task: NeedleTask, draft: Draft, length: int, depth: float, chat: bool
) -> Example:
    @functools.cache
    def attempt(num_units: int) -> tuple[str, Tokens]:
        prompt = render(tokenizer, task, draft.context(num_units), draft.key, chat)
        return prompt, tokenize(tokenizer, prompt, draft.answer)

    least = len(attempt(0)[1].ids)
    if least > length:
        raise BoschError(
            f"length {length} is too short for {task.name}: question, needles and answer alone take {least} tokens"
        )
    prompt, tokens = attempt(largest_fit(lambda num_units: len(attempt(num_units)[1].ids), length))
    return Example(
        input_ids=tokens.ids,
        answer_start=tokens.answer_start,
        needle_start=tokens.index_at(prompt.index(draft.needle)),
        task=task.name,
        length=length,
        depth=depth,
        prompt=prompt,
        answer=draft.answer,
    )

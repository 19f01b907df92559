"""How well a model finds needles: teacher-forced, as masks are scored in a search, and generated, as RULER does."""

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bosch.calibration import TASKS, Example, make_examples
from bosch.deploy.forward import predict, rows_that_fit
from bosch.evaluation.generation import generate_answers
from bosch.evaluation.prompts import encode
from bosch.evaluation.settings import EvalSettings
from bosch.scoring.batches import score_tokens
from bosch.scoring.objective import Score

TEACHER_FORCED, GENERATED, FIRST, NLL = "accuracy", "generated", "generated_first", "nll"
"""Scores: the share of examples whose answer tokens are all the likeliest; the share whose generated text holds the
answer, which is RULER's rule; the share whose first value of the answer's kind is the answer, so that neither a reply
that lists many values nor a longer number counts; the mean negative log-likelihood of the answers' tokens, in nats."""


def measure_needles(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: str,
    length: int,
    settings: EvalSettings,
    haystack: str | None,
    advance: Callable[[], object],
) -> dict[str, Any]:
    """Scores of one task at one length, and for each example its depth and what became of it.

    The examples are of the held-out split, so that no key or value of them was seen by a search; they depend on task,
    length, number and seed alone, and their depths are evenly spaced.

    Args:
        model: in eval mode.
        tokenizer: the model's.
        task: one of the needle tasks.
        length: of the examples, in tokens.
        settings: how many examples, from which seed, and whether to generate.
        haystack: prose to hide needles in; None = the text that the package ships.
        advance: is told of each example that is done.

    Returns:
        `scores`, `num_examples` and `examples`, as in a row.

    Raises:
        BoschError: the examples cannot be made, or the model has too few positions to generate the answers.
    """
    options: dict[str, Any] = {"seed": settings.seed, "split": "heldout", "chat": settings.chat}
    num = settings.examples
    made = make_examples(
        tokenizer, tasks=[task], lengths=[length], num_examples=num, haystack_text=haystack, **options
    ).examples
    score = score_answers(model, made, settings.batch_tokens, advance)
    scores = {TEACHER_FORCED: score.accuracy, NLL: score.nll}
    rows = [
        {"depth": round(depth_of(example), 4), "distance": example.distance, TEACHER_FORCED: hit, NLL: nll}
        for example, hit, nll in zip(made, score.hits, score.nlls, strict=True)
    ]
    if settings.generate:
        texts = generate_texts(model, tokenizer, made, settings.new_tokens, settings.batch_tokens)
        found = {GENERATED: find_in_generated(tokenizer, made, texts)}
        # A tokenizer that writes "58 31" for 5831 leaves no values to be told apart.
        if all(_written(tokenizer, example) == example.answer.lower() for example in made):
            found[FIRST] = [is_first_value(example, text) for example, text in zip(made, texts, strict=True)]
        scores |= {name: fmean(hits) for name, hits in found.items()}
        rows = [
            {**row, **dict(zip(found, hits, strict=True))} for row, *hits in zip(rows, *found.values(), strict=True)
        ]
    return {"scores": scores, "num_examples": num, "examples": tuple(rows)}


def depth_of(example: Example) -> float:
    """Where the needle begins, as a share of the prompt's tokens: 0 = at its start, 1 = at its end."""
    return example.needle_start / example.answer_start


def score_answers(
    model: PreTrainedModel,
    examples: Sequence[Example],
    batch_tokens: int,
    advance: Callable[[], object] = lambda: None,
) -> Score:
    """How well a live model predicts the answers of examples, through its own cache.

    Args:
        model: in eval mode.
        examples: of any lengths; those beside each other go together.
        batch_tokens: tokens that enter the model at a time, at most.
        advance: is told of each example that is done.
    """
    hits: list[bool] = []
    nlls: list[float] = []
    for batch in _batches(examples, batch_tokens):
        for hit, nll in _score_batch(model, batch, batch_tokens):
            hits.append(hit)
            nlls.append(nll)
            advance()
    return Score(tuple(hits), tuple(nlls))


def generate_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    new_tokens: int,
    batch_tokens: int,
) -> list[str]:
    """What a model goes on with after each prompt, greedily."""
    longest = max(len(example.input_ids) for example in examples)
    prompts = [example.prompt for example in examples]
    return generate_answers(model, tokenizer, prompts, new_tokens, batch_size=rows_that_fit(longest, batch_tokens))


def find_in_generated(
    tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], texts: Sequence[str]
) -> list[bool]:
    """Whether each text holds the answer, upper or lower case, as RULER scores these tasks.

    The answer is looked for as the tokenizer writes it, which is the answer itself unless the tokenizer loses spaces.
    """
    return [_written(tokenizer, example) in text.lower() for example, text in zip(examples, texts, strict=True)]


def _written(tokenizer: PreTrainedTokenizerBase, example: Example) -> str:
    """The answer as the tokenizer writes it, in lower case."""
    return str(tokenizer.decode(encode(tokenizer, example.answer), skip_special_tokens=True)).strip().lower()


VALUES = {
    "numbers": re.compile(r"\d+"),
    "uuids": re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    "words": re.compile(r"[a-z]+-[a-z]+"),
}
"""What a value of each kind looks like, in lower case."""


def is_first_value(example: Example, text: str) -> bool:
    """Whether the first whole value in a text, of the kind that is asked for, is the answer."""
    found = VALUES[TASKS[example.task].value].search(text.lower())
    return found is not None and found[0] == example.answer.lower()


def _batches(examples: Sequence[Example], batch_tokens: int) -> Iterator[Sequence[Example]]:
    rows = rows_that_fit(max(len(example.input_ids) for example in examples), batch_tokens)
    return (examples[start : start + rows] for start in range(0, len(examples), rows))


def _score_batch(model: PreTrainedModel, batch: Sequence[Example], batch_tokens: int) -> Iterator[tuple[bool, float]]:
    """Whether each answer is the likeliest, and its mean NLL. Rows are padded at their end, where no token sees it."""
    length = max(len(example.input_ids) for example in batch)
    padded = [[*example.input_ids, *[0] * (length - len(example.input_ids))] for example in batch]
    tokens = torch.tensor(padded, device=model.device)
    hits, sums = [True] * len(batch), [0.0] * len(batch)
    first = min(example.answer_start for example in batch)
    for start, logits in predict(model, tokens, first, max(1, batch_tokens // len(batch))):
        for row, example in enumerate(batch):
            begin, end = max(start, example.answer_start), min(start + logits.shape[1], len(example.input_ids))
            if begin < end:
                found, nlls = score_tokens(logits[row, begin - start : end - start], tokens[row, begin:end])
                hits[row] &= bool(found.all())
                sums[row] += float(nlls.sum())
    means = [total / example.num_answer_tokens for total, example in zip(sums, batch, strict=True)]
    return zip(hits, means, strict=True)

"""Answers that a model writes itself, greedily."""

import bisect
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)

from bosch.errors import BoschError
from bosch.evaluation.prompts import encode
from bosch.models.loading import check_tokens
from bosch.models.positions import num_positions


def generate_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    max_new_tokens: int,
    stop: Sequence[str] = (),
    batch_size: int = 1,
) -> list[str]:
    """What the model answers to each prompt: the likeliest token every time, whatever its generation config says.

    Prompts of about one length go together, padded on the left, the longest first, so that memory gives out at once or
    not at all. A bar on stderr counts them when someone is watching.

    Args:
        model: any causal language model of transformers, in eval mode.
        tokenizer: the model's.
        prompts: texts, chat template included where there is one.
        max_new_tokens: length of an answer at most, in tokens.
        stop: an answer ends before the first of these strings, and where the model's EOS comes.
        batch_size: prompts at a time.

    Returns:
        for each prompt the text that follows it, white space kept, special tokens left out.

    Raises:
        BoschError: a number is below 1, a prompt is empty, or a prompt and its answer exceed the model's positions.
    """
    for name, value in (("max_new_tokens", max_new_tokens), ("batch_size", batch_size)):
        if type(value) is not int or value < 1:
            raise BoschError(f"{name} must be an integer of at least 1, got {value!r}")
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    _check_lengths(model, encoded, max_new_tokens)
    order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]), reverse=True)
    answers: dict[int, str] = {}
    with tqdm(total=len(encoded), unit="answer", file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            ids = _continue(model, tokenizer, [encoded[index] for index in batch], max_new_tokens, stop)
            answers.update(zip(batch, (_text(model, tokenizer, row, stop) for row in ids), strict=True))
            bar.update(len(batch))
    return [answers[index] for index in range(len(encoded))]


def _check_lengths(model: PreTrainedModel, encoded: list[list[int]], max_new_tokens: int) -> None:
    if empty := [index for index, ids in enumerate(encoded) if not ids]:
        raise BoschError(f"prompt {empty[0]} has no tokens; expected at least one, to be continued")
    check_tokens(model, max((max(ids) for ids in encoded), default=0))
    longest, limit = max(map(len, encoded), default=0), num_positions(model.config)
    if limit is not None and longest + max_new_tokens > limit:
        raise BoschError(
            f"a prompt of {longest} tokens and an answer of up to {max_new_tokens} exceed the {limit} positions of the "
            "model; expected shorter prompts, or a model whose positions are extended"
        )


def _continue(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch: list[list[int]],
    max_new_tokens: int,
    stop: Sequence[str],
) -> list[list[int]]:
    """The tokens that follow each prompt; after the end of an answer, whatever fills the batch."""
    length = max(map(len, batch))
    eos = _eos_ids(model)
    padding = eos[0] if eos else 0
    input_ids = torch.tensor([[padding] * (length - len(ids)) + ids for ids in batch], device=model.device)
    attention_mask = torch.tensor([[0] * (length - len(ids)) + [1] * len(ids) for ids in batch], device=model.device)
    greedy = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        temperature=1.0,
        top_p=1.0,
        top_k=50,  # transformers' own value: it warns of any other one where nothing is drawn
        repetition_penalty=1.0,
        eos_token_id=eos or None,
        pad_token_id=padding,
    )
    criteria = StoppingCriteriaList([_StopStrings(tokenizer, stop, length)] if stop else [])
    output = model.generate(  # type: ignore[operator]
        input_ids=input_ids, attention_mask=attention_mask, generation_config=greedy, stopping_criteria=criteria
    )
    return output[:, length:].tolist()


def _eos_ids(model: PreTrainedModel) -> list[int]:
    assert model.generation_config is not None
    eos = model.generation_config.eos_token_id
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


class _StopStrings(StoppingCriteria):
    """Ends each answer of a batch once its text holds a stop string."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], prompt_length: int) -> None:
        self.tokenizer = tokenizer
        self.stop = stop
        self.prompt_length = prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        answers = input_ids[:, self.prompt_length :].tolist()
        return torch.tensor([_holds_stop(self.tokenizer, ids, self.stop) for ids in answers], device=input_ids.device)


def _holds_stop(tokenizer: PreTrainedTokenizerBase, ids: list[int], stop: Sequence[str]) -> bool:
    text = tokenizer.decode(ids)
    return any(end in text for end in stop)


def _text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ids: list[int], stop: Sequence[str]) -> str:
    """The answer's text, up to its EOS or its first stop string."""
    eos = _eos_ids(model)
    ids = ids[: next((index for index, token in enumerate(ids) if token in eos), len(ids))]
    # A stop string may be a special token, which the text is without: so the tokens end with it first.
    ids = ids[: bisect.bisect_left(range(len(ids)), True, key=lambda end: _holds_stop(tokenizer, ids[:end], stop))]
    text = str(tokenizer.decode(ids, skip_special_tokens=True))
    return text[: min((text.find(end) for end in stop if end in text), default=len(text))]

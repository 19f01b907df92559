"""How well a model predicts a long text, by position: a cheap check that nothing local broke, and what distance gives.

A sliding head sees as much as a full one until its window is full; from then on, what a hybrid lacks shows as a gap to
the original.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bosch.deploy.forward import predict, rows_that_fit
from bosch.errors import BoschError
from bosch.evaluation.prompts import encode

FIRST_EDGE = 64
LOGIT_CHUNK = 512
"""Tokens whose logits are held at a time: of a vocabulary of 150 000, 300 MB in float32."""


def measure_perplexity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    length: int,
    num_texts: int,
    batch_tokens: int,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Mean NLL of a text's tokens, in nats, over all positions and over each bucket of them.

    Args:
        model: in eval mode.
        tokenizer: the model's.
        text: is cut into pieces of `length` tokens that do not overlap; what is left at its end is not used.
        length: T, at least 2, a BOS included where the tokenizer has one.
        num_texts: pieces from the beginning, at most.
        batch_tokens: tokens that enter the model at a time, at most.
        advance: is told of each piece that is done.

    Returns:
        `scores` and `num_examples`, as in a row; the score of the bucket [64, 128) is called "nll 64-127".

    Raises:
        BoschError: the text is too short for one piece.
    """
    pieces = _cut(tokenizer, text, length, num_texts)
    sums = torch.zeros(length - 1, dtype=torch.float64)
    rows = min(rows_that_fit(length, batch_tokens), len(pieces))
    for start in range(0, len(pieces), rows):
        batch = pieces[start : start + rows]
        sums += _sum_nlls(model, torch.tensor(batch, device=model.device), batch_tokens)
        for _ in batch:
            advance()
    means = sums / len(pieces)
    buckets = {f"nll {first}-{last}": means[max(first - 1, 0) : last].mean().item() for first, last in _buckets(length)}
    return {"scores": {"nll": means.mean().item(), **buckets}, "num_examples": len(pieces)}


def _cut(tokenizer: PreTrainedTokenizerBase, text: str, length: int, num_texts: int) -> list[list[int]]:
    bos = tokenizer.bos_token_id
    prefix = [bos] if bos is not None and encode(tokenizer, "a")[:1] == [bos] else []
    ids = tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    size = length - len(prefix)
    num_texts = min(num_texts, len(ids) // size) if size > 0 else 0
    if length < 2 or not num_texts:
        raise BoschError(
            f"the text has {len(ids)} tokens, too few for a piece of {length}; give a longer text or a shorter length"
        )
    return [[*prefix, *ids[number * size : (number + 1) * size]] for number in range(num_texts)]


def _sum_nlls(model: PreTrainedModel, tokens: Tensor, batch_tokens: int) -> Tensor:
    """(T - 1,): the NLL of each token after the first, summed over the rows."""
    sums = torch.zeros(tokens.shape[1] - 1, dtype=torch.float64)
    chunk = max(1, min(batch_tokens, LOGIT_CHUNK) // len(tokens))
    for start, logits in predict(model, tokens, 1, chunk):
        wanted = tokens[:, start : start + logits.shape[1]]
        nlls = cross_entropy(logits.float().transpose(1, 2), wanted, reduction="none")
        sums[start - 1 : start - 1 + wanted.shape[1]] = nlls.sum(0).cpu()
    return sums


def _buckets(length: int) -> Iterator[tuple[int, int]]:
    """First and last position of each bucket: [0, 64), and then each as long as all before it."""
    edges = [0, *(FIRST_EDGE * 2**power for power in range(max(0, math.ceil(math.log2(length / FIRST_EDGE))))), length]
    return ((first, last - 1) for first, last in itertools.pairwise(edges))


def bucket_names(scores: Sequence[str]) -> list[str]:
    """Of the names of scores those of buckets, as positions."""
    return [name.removeprefix("nll ") for name in scores if name.startswith("nll ")]

"""Examples of about one length together, and what an evaluator keeps of them."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from bosch.attention.interface import KeyValue
from bosch.calibration import Example
from bosch.decoder import LayerCalls


@dataclasses.dataclass
class Batch:
    """Examples of about one length, padded on the right, and what is kept of them.

    Args:
        indices: which examples of the set.
        calls: what each layer is called with.
        prefix: P, tokens at the start that no mask can change.
        past: per layer, keys and values of the prefix.
        suffix: (T - P,) int64, positions of the other tokens.
        boundaries: hidden states (B, T - P, hidden size) that enter a layer under the base mask, by layer.
        predicting: (B, A) int64, positions that predict the answers, padded with each row's last.
        answers: (B, A) int64, the tokens to be predicted there.
        real: (B, A) bool, False for padding.
    """

    indices: tuple[int, ...]
    calls: LayerCalls
    prefix: int
    past: list[KeyValue | None]
    suffix: Tensor
    boundaries: dict[int, Tensor]
    predicting: Tensor
    answers: Tensor
    real: Tensor


def group_by_length(examples: Sequence[Example], batch_tokens: int) -> list[list[int]]:
    """Indices of examples in batches of at most that many tokens, padding included, of which it has at most a tenth;
    longest first: the first batch shows at once whether memory suffices."""
    groups: list[list[int]] = []
    for index in sorted(range(len(examples)), key=lambda i: -len(examples[i].input_ids)):
        longest = len(examples[groups[-1][0]].input_ids) if groups else 0
        alike = len(examples[index].input_ids) >= 0.9 * longest
        if groups and alike and longest * (len(groups[-1]) + 1) <= batch_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def padded_tokens(examples: Sequence[Example]) -> Tensor:
    """Token ids (B, T) int64, padded on the right with zeros."""
    rows = [torch.tensor(example.input_ids) for example in examples]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def score_tokens(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """How well tokens are predicted: the one place that says what a hit and an NLL are (paper 3.3).

    Args:
        logits: (N, vocabulary), of any dtype.
        tokens: (N,) int64.

    Returns:
        (N,) bool, whether each is the likeliest; and (N,) NLLs in nats, float32 or, of such logits, float64.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide.argmax(-1) == tokens, torch.nn.functional.cross_entropy(wide, tokens, reduction="none")


def answer_tokens(examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """Predicting positions, answer tokens and which are real, each (B, A)."""
    width = max(len(example.input_ids) - example.answer_start for example in examples)
    predicting, answers, real = [], [], []
    for example in examples:
        positions = list(range(example.answer_start - 1, len(example.input_ids) - 1))
        padding = width - len(positions)
        predicting.append(positions + positions[-1:] * padding)
        answers.append(list(example.input_ids[example.answer_start :]) + [0] * padding)
        real.append([True] * len(positions) + [False] * padding)
    return torch.tensor(predicting), torch.tensor(answers), torch.tensor(real)

"""Attention of the stock model, eager and dense; nothing of the package's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel


@contextmanager
def eager(model: PreTrainedModel) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def dense_attention(model: PreTrainedModel, tokens: tuple[int, ...]) -> list[Tensor]:
    """(H, T, T) float64 probabilities of each layer."""
    with eager(model), torch.no_grad():
        maps = model(input_ids=torch.tensor([tokens]), output_attentions=True, use_cache=False).attentions
    return [layer[0].double() for layer in maps]


def dense_gradients(model: PreTrainedModel, tokens: tuple[int, ...], answer_start: int) -> list[Tensor]:
    """(H, T, T) float64 of each layer: gradient of the mean answer NLL times the probability."""
    with eager(model):
        output = model(input_ids=torch.tensor([tokens]), output_attentions=True, use_cache=False)
    for layer in output.attentions:
        layer.retain_grad()
    logits = output.logits[0, answer_start - 1 : -1]
    torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[answer_start:])).backward()
    model.zero_grad(set_to_none=True)
    return [(layer.grad * layer.detach())[0].double() for layer in output.attentions]

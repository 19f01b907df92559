"""Stock models that generate without an end, and hybrids of them."""

import copy
import functools

import torch
from transformers import PreTrainedModel

from bosch.deploy.hybridize import hybridize
from bosch.deploy.layers import attention_layers, layout_of
from bosch.deploy.modeling_bosch import BoschMixin
from bosch.heads import HeadMask
from bosch.selectors import random_mask
from families import make_model


@functools.cache
def stock_model(family: str = "llama", dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """A family's small random model, greedy; the same object for every test, which leaves it as it is."""
    model = make_model(family, dtype)
    model.generation_config.update(eos_token_id=None, pad_token_id=0, bos_token_id=1, do_sample=False)
    return model


def some_mask(model: PreTrainedModel, window: int = 7, sinks: int = 0, ratio: float = 0.5, seed: int = 1) -> HeadMask:
    """Random units sliding."""
    return random_mask(HeadMask.all_full(layout_of(attention_layers(model)), window, sinks), ratio, seed)


@functools.cache
def hybrid_of(model: PreTrainedModel, mask: HeadMask) -> BoschMixin:
    """A hybrid, beside the model; the same object for every test, which leaves it as it is."""
    return hybridize(copy.deepcopy(model), mask)


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random tokens, no padding among them."""
    return torch.randint(1, 97, shape, generator=torch.Generator().manual_seed(seed))


def left_padded(*lengths: int) -> dict[str, torch.Tensor]:
    """A batch of prompts of these lengths."""
    ids, real = tokens(len(lengths), max(lengths)), torch.ones(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, : max(lengths) - length] = 0
        real[row, : max(lengths) - length] = 0
    return {"input_ids": ids, "attention_mask": real}

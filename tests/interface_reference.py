"""The reference for any family at all: plain softmax attention under dense masks, called in the family's own place.

Nothing of the package's attention is used. transformers' own masks say what each query may see by itself (causality,
windows, chunks, padding); the mask under test takes away from that, pair by pair.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from bosch.heads import HeadMask

NAME = "dense_reference"
RULE = "dense_reference_rule"


@contextlib.contextmanager
def dense_attention(model: PreTrainedModel, mask: HeadMask | None) -> Iterator[None]:
    """Inside, the model attends as the mask says; without one, as it does by itself. Its `use_cache` must be False."""
    text = model.config.get_text_config(decoder=True)
    modules = [module for module in model.modules() if hasattr(module, "layer_idx")]
    configs = {id(module.config): module.config for module in modules if hasattr(module, "config")} | {id(text): text}
    before = [(config, config._attn_implementation) for config in configs.values()]
    for config, _ in before:
        config._attn_implementation_internal = NAME
    for module in modules:
        setattr(module, RULE, mask)
    try:
        yield
    finally:
        for module in modules:
            delattr(module, RULE)
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    num_groups, length = key.shape[1:3]
    assert query.shape[2] == length
    lag = torch.arange(length)[:, None] - torch.arange(length)
    seen = lag >= 0 if attention_mask is None else attention_mask
    seen = seen.expand(len(query), num_groups, length, length)
    if sliding_window is not None and attention_mask is None:
        seen = seen & (lag < sliding_window)
    rule = getattr(module, RULE)
    row = rule.full[module.layer_idx] if rule is not None else ()
    if row:
        near = (lag < rule.window_of(module.layer_idx)) | (seen.cumsum(-1) <= rule.sinks)
        seen = seen & (torch.tensor(row)[:, None, None] | near)
    seen = seen.repeat_interleave(query.shape[1] // num_groups, dim=1) | (lag == 0)
    key, value = (x.repeat_interleave(query.shape[1] // num_groups, dim=1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen, -torch.inf)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux[None, :, None, None].expand(*scores.shape[:-1], 1)], dim=-1)
    return (scores.softmax(-1)[..., :length] @ value).transpose(1, 2).contiguous(), None


def _mask(*arguments: Any, allow_is_causal_skip: bool = False, **options: Any) -> Tensor | None:
    return sdpa_mask(*arguments, allow_is_causal_skip=False, **options)


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _mask)

"""The kernel for any call at all: scores, softmax and sum, written out, over blocks of queries."""

import torch
from torch import Tensor

from bosch.attention.call import AttentionCall
from bosch.attention.visibility import blocks


def supports(query: Tensor, value: Tensor, call: AttentionCall) -> bool:
    """Everything."""
    return True


def attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Attention in float32 at least (float64 stays), in memory O(block * Tk) per head.

    Args:
        query: (B, G, R, Tq, D).
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        call: any call.

    Returns:
        (B, G, R, Tq, Dv) in the dtype of the query.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    scaled, wide_key, wide_value = query.to(dtype) * call.scaling, key.to(dtype), value.to(dtype)
    with torch.autocast(query.device.type, enabled=False):  # mixed precision would make these products narrow again
        outputs = [
            _attend_block(scaled[..., rows, :], wide_key[:, :, keys], wide_value[:, :, keys], mask, call)
            for rows, keys, mask in blocks(call, query, key)
        ]
    return torch.cat(outputs, dim=-2).to(query.dtype)


def _attend_block(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, call: AttentionCall) -> Tensor:
    # The R query heads of a group are rows of one matmul, so that keys and values are not repeated.
    heads_and_rows = query.shape[2:4]
    scores = (query.flatten(2, 3) @ key.mT).unflatten(2, heads_and_rows)
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
    if call.sink_logits is not None:
        column = call.sink_logits.to(scores.dtype)[None, :, :, None, None]
        scores = torch.cat([scores, column.expand(*scores.shape[:-1], 1)], dim=-1)
    probabilities = scores.softmax(dim=-1)[..., : key.shape[-2]]
    return (probabilities.flatten(2, 3) @ value).unflatten(2, heads_and_rows)

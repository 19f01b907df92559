"""Attention through torch's `scaled_dot_product_attention`: causal where that says it all, else masked by blocks."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bosch.attention.call import AttentionCall
from bosch.attention.visibility import blocks


def supports(query: Tensor, value: Tensor, call: AttentionCall) -> bool:
    """Any visibility; no softcap and no learned sinks."""
    return call.softcap is None and call.sink_logits is None


def attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Attention for any mask, in memory O(block * Tk); a full causal call takes the fused causal kernel.

    Args:
        query: (B, G, R, Tq, D).
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        call: no softcap, no sink_logits.

    Returns:
        (B, G, R, Tq, Dv).
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    if call.is_plain and (call.window is None or call.window >= num_keys):
        if num_queries == num_keys:
            return _attend_causal(query, key, value, call.scaling)
        if num_queries == 1:
            return attend_folded(query, key, value, None, call.scaling)
    # `is_causal` aligns the first query with the first key, which is wrong for suffix queries: they are masked.
    outputs = [
        attend_folded(query[..., rows, :], key[:, :, keys], value[:, :, keys], mask[:, None], call.scaling)
        for rows, keys, mask in blocks(call, query, key)
    ]
    return torch.cat(outputs, dim=-2)


def _attend_causal(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    # A group's keys serve its R query heads as a stride-0 view: bit-equal to repeated keys on the CPU of torch 2.13,
    # as fast as `enable_gqa`, and no backend needs to know about groups.
    batch_and_groups, heads = query.shape[:2], query.shape[2]
    output = scaled_dot_product_attention(
        query.flatten(0, 1),
        key.flatten(0, 1)[:, None].expand(-1, heads, -1, -1),
        value.flatten(0, 1)[:, None].expand(-1, heads, -1, -1),
        is_causal=True,
        scale=scaling,
    )
    return output.unflatten(0, batch_and_groups)


def attend_folded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """One SDPA call in which the R query heads of a group are rows of one head: keys and values are not repeated.

    Args:
        query: (X, Y, R, Tq, D), X and Y any two batch dimensions.
        key: (X, Y, Tk, D).
        value: (X, Y, Tk, Dv).
        mask: bool, True = visible, broadcastable to (X, Y, Tq, Tk); None = everything is visible.
        scaling: factor on the dot products.

    Returns:
        (X, Y, R, Tq, Dv).
    """
    heads_and_rows = query.shape[2:4]
    if mask is not None:
        mask = mask[:, :, None].expand(-1, -1, heads_and_rows[0], -1, -1).flatten(2, 3)
    output = scaled_dot_product_attention(query.flatten(2, 3), key, value, attn_mask=mask, scale=scaling)
    return output.unflatten(2, heads_and_rows)

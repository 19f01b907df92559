"""torch's FlexAttention, compiled, for CUDA calls with softcap or learned sinks, which SDPA cannot serve.

It is never chosen on the CPU. There its mask and score functions are tested uncompiled; compiled, on CUDA, it is not.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from bosch.attention.call import AttentionCall


def supports(query: Tensor, value: Tensor, call: AttentionCall) -> bool:
    """CUDA, up to float32, visibility by a rule rather than by a given `allowed` or by several documents."""
    return query.is_cuda and query.dtype != torch.float64 and call.allowed is None and call.documents is None


def attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Attention by compiled FlexAttention.

    Args:
        query: (B, G, R, Tq, D).
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        call: no `allowed` and no `documents`.

    Returns:
        (B, G, R, Tq, Dv).
    """
    mask = create_block_mask(
        mask_function(query, key, call),
        B=query.shape[0] if call.padding is not None or call.positions is not None else None,
        H=None,
        Q_LEN=query.shape[-2],
        KV_LEN=key.shape[-2],
        device=query.device,
        _compile=True,  # uncompiled it forms the whole Tq x Tk mask
    )
    return attend_masked(_compiled_flex_attention(), query, key, value, call, mask)


@functools.cache
def _compiled_flex_attention() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def attend_masked(
    flex: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, call: AttentionCall, mask: BlockMask
) -> Tensor:
    """One call of a flex attention function, compiled or not; shapes as in `attend`."""
    output, aux = flex(
        query.flatten(1, 2),
        key,
        value,
        score_mod=None if call.softcap is None else softcap_function(call.softcap),
        block_mask=mask,
        scale=call.scaling,
        enable_gqa=True,
        return_aux=AuxRequest(lse=call.sink_logits is not None),
    )
    output = output.unflatten(1, query.shape[1:3])
    if call.sink_logits is None:
        return output
    # One more column of weight exp(s) shrinks the output by exp(lse) / (exp(lse) + exp(s)).
    log_sum_exp = aux.lse.unflatten(1, query.shape[1:3])
    share = torch.sigmoid(log_sum_exp - call.sink_logits[None, :, :, None])
    return output * share[..., None].to(output.dtype)


def softcap_function(softcap: float) -> Callable[..., Tensor]:
    """Score function of flex attention for `softcap * tanh(score / softcap)`."""

    def cap(score: Tensor, row: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return cap


def mask_function(query: Tensor, key: Tensor, call: AttentionCall) -> Callable[..., Tensor]:
    """Mask function of flex attention for the definition in `visibility`."""
    num_rows, num_queries, num_keys = query.shape[0], query.shape[-2], key.shape[-2]
    positions = call.positions
    if positions is None:
        positions = torch.arange(num_keys - num_queries, num_keys, device=query.device).expand(num_rows, -1)
    real = call.padding
    if real is None:
        real = torch.ones(num_rows, num_keys, dtype=torch.bool, device=query.device)
    rank = real.cumsum(-1)

    def is_visible(row: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        position = positions[row, query_index]
        seen = (key_index <= position) & real[row, key_index]
        if call.window is not None:
            seen = seen & ((position - key_index < call.window) | (rank[row, key_index] <= call.sinks))
        return torch.where(real[row, position], seen, key_index == position)

    return is_visible

"""Sliding-window attention in O(T * (W + C)): each block of C queries against its own C + W - 1 keys.

The first W + S queries see every key before them (their window and the sinks meet), so they are full attention.
Every later query sees exactly W keys and all S sinks, so one band mask serves all blocks, and nothing is padded.
"""

import torch
from torch import Tensor

from bosch.attention import sdpa
from bosch.attention.call import AttentionCall

# C, queries per block. Measured on a CPU (AVX2, torch 2.13, one thread), float32 and bfloat16, 1, 3 and 8 query heads
# per group, W 64 and 256, T 512 to 4096: 32 was the fastest or within 15 % of it in every case, as the C - 1 keys of a
# block that a query does not see are wasted; 128 took 1.2 to 4 times as long. W 16 and 1024, T 8192: 16 to 64 were
# alike within the noise.
BLOCK = 32


def supports(query: Tensor, value: Tensor, call: AttentionCall) -> bool:
    """A window over unpadded rows of one document; no softcap and no learned sinks."""
    return call.window is not None and call.is_plain and call.softcap is None and call.sink_logits is None


def attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Sliding-window attention with sinks; equal to full attention where window and sinks cover all keys.

    Args:
        query: (B, G, R, Tq, D), the last Tq of the Tk positions.
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        call: a window; no padding, positions, allowed, documents, softcap or sink_logits.

    Returns:
        (B, G, R, Tq, Dv).
    """
    assert call.window is not None
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    offset = num_keys - num_queries
    head = min(max(call.window + call.sinks - offset, 0), num_queries)
    outputs = []
    if head:
        full = AttentionCall(call.scaling)
        prefix = slice(0, offset + head)
        outputs.append(sdpa.attend(query[..., :head, :], key[:, :, prefix], value[:, :, prefix], full))
    tail = (num_queries - head) % BLOCK
    if num_queries - tail > head:
        body = slice(0, num_keys - tail)
        body_query = query[..., head : num_queries - tail, :]
        outputs.append(_attend_blocks(body_query, key[:, :, body], value[:, :, body], call, BLOCK))
    if tail:
        outputs.append(_attend_blocks(query[..., num_queries - tail :, :], key, value, call, tail))
    return torch.cat(outputs, dim=-2)


def _attend_blocks(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall, size: int) -> Tensor:
    """The last queries, a multiple of `size`, each past the first W + S positions: one SDPA call over their blocks."""
    assert call.window is not None
    batch_and_groups, count = query.shape[:2], query.shape[3] // size
    blocks = query.flatten(0, 1).unflatten(2, (count, size)).transpose(1, 2)
    output = sdpa.attend_folded(
        blocks,
        _key_blocks(key, call, count, size),
        _key_blocks(value, call, count, size),
        _band(call.window, call.sinks, size, query.device),
        call.scaling,
    )
    return output.transpose(1, 2).flatten(2, 3).unflatten(0, batch_and_groups)


def _key_blocks(key: Tensor, call: AttentionCall, count: int, size: int) -> Tensor:
    """(B * G, count, S + size + W - 1, D): sinks, then the keys of each block; without sinks an overlapping view."""
    assert call.window is not None
    flat = key.flatten(0, 1)
    first = flat.shape[1] - count * size - call.window + 1
    bands = flat[:, first:].unfold(1, size + call.window - 1, size).mT
    if not call.sinks:
        return bands
    sinks = flat[:, None, : call.sinks].expand(-1, count, -1, -1)
    return torch.cat([sinks, bands], dim=2)


def _band(window: int, sinks: int, size: int, device: torch.device) -> Tensor:
    """(1, 1, size, sinks + size + window - 1) bool: query c sees the sinks and the W band columns from c on."""
    query = torch.arange(size, device=device)[:, None]
    column = torch.arange(-sinks, size + window - 1, device=device)
    return ((column < 0) | ((column >= query) & (column < query + window)))[None, None]

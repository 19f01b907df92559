"""Which keys a query sees: the definition that every kernel follows.

1. Causal: keys j <= i, i the query's position; or what `allowed` says. Never a padding key, nor another document's.
2. With a window, of these only the keys with i - j < W, and the first S (the sinks). Under the causal rule the
   first S are the row's own first S real tokens; in a packed row, the document's.
3. A padding query, or one that is left with nothing, sees itself alone: its output is unused but stays finite.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from bosch.attention.call import AttentionCall

# Large enough for efficient matmuls; small enough that a block's scores at 32k keys stay in the tens of MB per head.
QUERY_BLOCK = 256


def blocks(call: AttentionCall, query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """The visibility of a call, block by block of queries, so that no Tq x Tk mask is ever held.

    Args:
        call: the attention call.
        query: (B, G, R, Tq, D).
        key: (B, G, Tk, D).

    Yields:
        Query slice, key slice (keys that no query of the block can see are left out where the indices alone tell),
        and their bool mask (B or 1, block, keys), True = visible.
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    offset = num_keys - num_queries
    for start in range(0, num_queries, QUERY_BLOCK):
        rows = slice(start, min(start + QUERY_BLOCK, num_queries))
        keys = slice(0, num_keys)
        if call.positions is None and call.allowed is None:
            first = 0 if call.window is None or call.sinks else max(0, offset + rows.start - call.window + 1)
            keys = slice(first, offset + rows.stop)
        if call.positions is None:
            positions = torch.arange(offset + rows.start, offset + rows.stop, device=query.device)[None]
        else:
            positions = call.positions[:, rows]
        yield rows, keys, visible(call, rows, keys, positions)


def visible(call: AttentionCall, rows: slice, keys: slice, positions: Tensor) -> Tensor:
    """The definition above for some queries and some keys.

    Args:
        call: the attention call.
        rows: the queries, in `allowed`.
        keys: the keys; must begin at 0 if there are sinks, which are counted from there.
        positions: (B or 1, queries) int64, the key index of each query.

    Returns:
        (B or 1, queries, keys) bool, True = visible.
    """
    index = torch.arange(keys.start, keys.stop, device=positions.device)
    own = index == positions[:, :, None]
    seen = index <= positions[:, :, None] if call.allowed is None else call.allowed[:, 0, rows, keys]
    if call.padding is not None:
        seen = seen & call.padding[:, None, keys]
    if call.documents is not None:
        documents = call.documents.to(positions.device)
        own_document = documents.gather(1, positions.expand(len(documents), -1))
        seen = seen & (own_document[:, :, None] == documents[:, None, keys])
    if call.window is not None:
        near = positions[:, :, None] - index < call.window
        if call.sinks:
            near = near | (seen.cumsum(-1) <= call.sinks)
        seen = seen & near
    if call.padding is not None:
        is_real = call.padding.gather(1, positions.expand(call.padding.shape[0], -1))
        seen = seen & is_real[:, :, None]
    if call.padding is not None or call.allowed is not None:
        seen = seen | (own & ~seen.any(-1, keepdim=True))
    return seen

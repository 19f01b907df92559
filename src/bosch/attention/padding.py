"""Padded batches, row by row: a row's real tokens alone are an unpadded problem, with its own window and sinks."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from bosch.attention.call import AttentionCall

AttendFunction = Callable[[Tensor, Tensor, Tensor, AttentionCall], Tensor]

# Fewer queries than this (decoding, short chunks) are cheaper as one masked call than as one call per row. Measured on
# the CPU with 2 and 8 rows: at 64 the masked call takes 0.4 to 0.8 of the time, at 256 1.1 to 2 times as long.
MIN_QUERIES = 128


def real_spans(query: Tensor, call: AttentionCall) -> list[tuple[int, int]] | None:
    """The first and past-the-last real token of each row, if the rows are to be taken one by one.

    Returns:
        None if there is no padding, too few queries to be worth it, a rule other than the causal one, or a row whose
        real tokens are not in one piece.
    """
    if call.padding is None or not dataclasses.replace(call, padding=None).is_plain or query.shape[-2] < MIN_QUERIES:
        return None
    real = call.padding.long()
    starts = real.argmax(-1)
    stops = starts + real.sum(-1)
    index = torch.arange(real.shape[1], device=real.device)
    in_one_piece = (index >= starts[:, None]) & (index < stops[:, None])
    if not torch.equal(in_one_piece, call.padding):
        return None
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def attend_rows(
    attend: AttendFunction,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    call: AttentionCall,
    spans: list[tuple[int, int]],
) -> Tensor:
    """Attention over each row's span; a padding query gets the value at its own position.

    Args:
        attend: attention over an unpadded row.
        query: (B, G, R, Tq, D).
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        call: a padded call.
        spans: per row, the first and past-the-last real key.

    Returns:
        (B, G, R, Tq, Dv).
    """
    unpadded = dataclasses.replace(call, padding=None)
    offset = key.shape[-2] - query.shape[-2]
    own = value[:, :, None, offset:].expand(-1, -1, query.shape[2], -1, -1)
    rows = []
    for row, (start, stop) in enumerate(spans):
        first, past = max(start - offset, 0), max(stop - offset, 0)
        one, keys = slice(row, row + 1), slice(start, stop)
        parts = [own[one, ..., :first, :], own[one, ..., past:, :]]
        if past > first:
            real = query[one, ..., first:past, :]
            parts.insert(1, attend(real, key[one, :, keys], value[one, :, keys], unpadded))
        rows.append(torch.cat(parts, dim=-2))
    return torch.cat(rows)

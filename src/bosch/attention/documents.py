"""Packed rows, document by document: a document alone is a plain problem with its own window and its own sinks.

So a sliding group costs O(T * (W + C)) over a packed row as well, a full one the sum of its documents' squares, and no
T x T mask is formed. On the CPU one call a document was as fast as any grouping of short ones under a mask: T 4096,
documents of 30, 100 and 200 tokens, W 64 and full.
"""

import dataclasses
import itertools

import torch
from torch import Tensor
from torch.nn.functional import pad

from bosch.attention.call import AttentionCall
from bosch.attention.padding import AttendFunction


def number_documents(positions: Tensor) -> Tensor:
    """(B, T) int64 on the CPU, from position ids (B, T): a document begins wherever they do not rise; a gap is none."""
    return pad(positions.diff() <= 0, (1, 0)).cumsum(-1).cpu()


def attend_documents(attend: AttendFunction, query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Attention over each document alone.

    Args:
        attend: attention over a row of one document.
        query: (B, G, R, T, D).
        key: (B, G, T, D).
        value: (B, G, T, Dv).
        call: with documents, without padding or positions.

    Returns:
        (B, G, R, T, Dv).
    """
    assert call.documents is not None
    assert query.shape[-2] == key.shape[-2], "documents were given for queries that are not all of the keys"
    alone = dataclasses.replace(call, documents=None)
    rows = []
    for row, documents in enumerate(call.documents):
        one = slice(row, row + 1)
        borders = [0, *(documents.diff().nonzero()[:, 0] + 1).tolist(), len(documents)]
        tokens = itertools.starmap(slice, itertools.pairwise(borders))
        parts = [attend(query[one, ..., part, :], key[one, :, part], value[one, :, part], alone) for part in tokens]
        rows.append(torch.cat(parts, dim=-2))
    return torch.cat(rows)

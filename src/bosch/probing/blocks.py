"""Attention written out for a few queries at a time."""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from bosch.attention.interface import Observation

BLOCK_ELEMENTS = 2**22
"""Most entries of one block, over all heads: 16 MiB in float32, so that the few copies that a statistic makes of it
stay far below what a plain pass needs."""


@dataclasses.dataclass(frozen=True)
class AttentionBlock:
    """How Q consecutive queries of one sequence attend, in all H query heads of a layer.

    Args:
        first: position of the first query; the keys are all K = first + Q positions up to the last query's.
        num_tokens: T, the whole sequence's.
        logits: (H, Q, K), scaled and soft-capped dot products; -inf where a key comes after the query.
        probabilities: (H, Q, K); rows sum to 1, or to less where the layer has learned sinks.
        gradients: (H, Q, K), of the loss with respect to the probabilities; None where no loss was asked for.
    """

    first: int
    num_tokens: int
    logits: Tensor
    probabilities: Tensor
    gradients: Tensor | None = None

    def local(self, window: int, sinks: int) -> tuple[int, Tensor]:
        """What a sliding head would see.

        Returns:
            The first key that any query of the block has in its window, c; and (Q, K - c) bool over the keys from c on:
            True = within the window, or a sink. Of the keys before c, only the sinks would be seen.
        """
        num_keys = self.probabilities.shape[-1]
        start = max(0, self.first - window + 1)
        query = torch.arange(self.first, num_keys, device=self.probabilities.device)[:, None]
        key = torch.arange(start, num_keys, device=self.probabilities.device)
        return start, (key <= query) & ((query - key < window) | (key < sinks))

    def local_sum(self, values: Tensor, window: int, sinks: int) -> Tensor:
        """(H, Q), the sum of (H, Q, K) values, zero after the query, over the keys that a sliding head would see."""
        start, seen = self.local(window, sinks)
        near = torch.where(seen, values[..., start:], 0).sum(-1)
        return near + values[..., : min(sinks, start)].sum(-1)


def attention_blocks(observation: Observation, output_gradient: Tensor | None = None) -> Iterator[AttentionBlock]:
    """The attention of one layer to one sequence, block by block.

    Args:
        observation: of the layer's attention call, batch size 1, nothing padded.
        output_gradient: (1, T, H, Dv), of the loss with respect to the attention's output.

    Yields:
        Blocks in the order of their queries; float32, or float64 where the model is.
    """
    call = observation.call
    assert call.is_plain, "a single sequence without padding"
    assert call.window is None, "a layer of full attention"
    dtype = torch.promote_types(observation.query.dtype, torch.float32)
    key, value = observation.keys.key[0].to(dtype), observation.keys.value[0].to(dtype)
    query = observation.query[0].unflatten(0, (key.shape[0], -1)).to(dtype) * call.scaling
    num_tokens, num_heads = key.shape[1], observation.query.shape[1]
    size = max(1, min(num_tokens, BLOCK_ELEMENTS // (num_heads * num_tokens)))
    for first in range(0, num_tokens, size):
        stop = min(first + size, num_tokens)
        logits = _logits(query[:, :, first:stop], key[:, :stop], call.softcap, first)
        probabilities = _softmax(logits, call.sink_logits)
        gradients = None
        if output_gradient is not None:
            rows = output_gradient[0, first:stop].transpose(0, 1).to(dtype).unflatten(0, (key.shape[0], -1))
            gradients = (rows.flatten(1, 2) @ value[:, :stop].mT).unflatten(1, rows.shape[1:3]).flatten(0, 1)
        yield AttentionBlock(first, num_tokens, logits, probabilities, gradients)


def _logits(query: Tensor, key: Tensor, softcap: float | None, first: int) -> Tensor:
    """(H, Q, K) from scaled queries (G, R, Q, D) at positions from `first` on, and keys (G, K, D)."""
    # The R query heads of a group are rows of one product, so that keys are not repeated.
    logits = (query.flatten(1, 2) @ key.mT).unflatten(1, query.shape[1:3]).flatten(0, 1)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    num_queries = query.shape[2]
    later = torch.ones(num_queries, num_queries, dtype=torch.bool, device=query.device).triu(1)
    logits[..., first:].masked_fill_(later, -torch.inf)
    return logits


def _softmax(logits: Tensor, sink_logits: Tensor | None) -> Tensor:
    if sink_logits is None:
        return logits.softmax(-1)
    column = sink_logits.flatten().to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column], dim=-1).softmax(-1)[..., :-1]

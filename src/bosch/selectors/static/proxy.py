"""Proxy (paper B.3.3; after ProxyAttn, Wang et al., 2025): how many blocks of keys a head needs, in the order that its
layer's representative heads give them.

What the paper leaves open is chosen here: the representatives are the first query head of each KV group; a block has
128 keys, or W where that is less, so that a window is never smaller than a block; gamma is 0.95; and the number of
blocks is taken as a share of those that a query can see, since late queries have more.
"""

import dataclasses

import torch
from torch import Tensor

from bosch.common.options import check_integer, check_positive
from bosch.errors import BoschError
from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class NeededBlocks:
    """Minus the mean share of blocks that hold gamma of a head's mass, best blocks of its layer first."""

    def __init__(self, subject: Subject, size: int, gamma: float) -> None:
        self.units_per_layer = subject.decoder.layout.units_per_layer
        self.size, self.gamma = size, gamma
        self._shares: dict[int, Tensor] = {}
        self._queries: dict[int, int] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the share of blocks that each query needs."""
        num_heads, num_queries, num_keys = block.probabilities.shape
        representatives = block.probabilities[:: num_heads // self.units_per_layer[layer]]
        order = self._sum_blocks(representatives.amax(0)).sort(dim=-1, descending=True, stable=True).indices
        masses = self._sum_blocks(block.probabilities)
        held = masses.gather(-1, order.expand(num_heads, -1, -1)).cumsum(-1)
        missing = held < self.gamma * held[..., -1:]
        position = torch.arange(block.first, num_keys, device=held.device)
        shares = (missing.sum(-1) + 1) / (position // self.size + 1)
        self._shares[layer] = self._shares.get(layer, 0) + shares.double().sum(-1)
        self._queries[layer] = self._queries.get(layer, 0) + num_queries

    def locality(self, layer: int) -> Tensor:
        """(H,), in [-1, 0)."""
        return -self._shares[layer] / self._queries[layer]

    def _sum_blocks(self, probabilities: Tensor) -> Tensor:
        """(..., K) summed over blocks of keys."""
        padding = -probabilities.shape[-1] % self.size
        return torch.nn.functional.pad(probabilities, (0, padding)).unflatten(-1, (-1, self.size)).sum(-1)


@dataclasses.dataclass(frozen=True)
class Proxy(AttentionRanking):
    """Proxy attention.

    Args:
        block: keys of a block; W where that is less.
        gamma: share of a head's mass that its blocks must hold.
    """

    name = "proxy"
    summary = "Proxy attention (paper B.3.3): how many blocks of keys a head needs, its layer's best blocks first."

    block: int = 128
    gamma: float = 0.95

    def __post_init__(self) -> None:
        check_integer("block", self.block, 1)
        check_positive("gamma", self.gamma)
        if self.gamma > 1:
            raise BoschError(f"gamma must be a share of at most 1, got {self.gamma!r}")

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return NeededBlocks(subject, min(self.block, subject.window), self.gamma)

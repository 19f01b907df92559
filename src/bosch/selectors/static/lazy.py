"""Lazy (after LightTransfer, Zhang et al., 2024, arXiv 2410.13846): layers whose last queries attend to the first
and the recent tokens only.

Of that method's constants, 4 first tokens are kept; recent means our window, since that is what a sliding layer would
see; and the last queries are the last 64, which hold the question and the answer.
"""

import torch
from torch import Tensor

from bosch.probing import AttentionBlock, Subject
from bosch.selectors.static.measuring import AttentionMeasure
from bosch.selectors.static.ranking import Ranking

FIRST_TOKENS = 4
LAST_QUERIES = 64


class LazyRatio:
    """Mean share, over a layer's heads, the last queries and the examples, of the attention to first and recent tokens:
    the same for all units of a layer, so that layers slide as a whole, but for the last."""

    def __init__(self, subject: Subject) -> None:
        self.window = subject.window
        self._sums: dict[int, Tensor] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the share of the queries that are among the last."""
        late = max(0, block.num_tokens - LAST_QUERIES - block.first)
        shares = block.local_sum(block.probabilities, self.window, FIRST_TOKENS)[:, late:]
        count = torch.full_like(shares[:, 0] if shares.shape[1] else block.probabilities[:, 0, 0], shares.shape[1])
        self._sums[layer] = self._sums.get(layer, 0) + torch.stack([shares.sum(-1), count]).double()

    def locality(self, layer: int) -> Tensor:
        """(H,), all equal, in [0, 1]."""
        share, count = self._sums[layer].sum(-1)
        return (share / count).expand(self._sums[layer].shape[1])


LAZY = Ranking("lazy", AttentionMeasure(LazyRatio))

"""Lazy (after LightTransfer, Zhang et al., 2024, arXiv 2410.13846): layers whose last queries attend to the first
and the recent tokens only.

Of that method's constants, 4 first tokens are kept; recent means our window, since that is what a sliding layer would
see; and the last queries are the last 64, which hold the question and the answer.
"""

import dataclasses

import torch
from torch import Tensor

from bosch.common.options import check_integer
from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class LazyRatio:
    """Mean share, over a layer's heads, the last queries and the examples, of the attention to first and recent tokens:
    the same for all units of a layer, so that layers slide as a whole, but for the last."""

    def __init__(self, subject: Subject, first_tokens: int, last_queries: int) -> None:
        self.window, self.first_tokens, self.last_queries = subject.window, first_tokens, last_queries
        self._sums: dict[int, Tensor] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the share of the queries that are among the last."""
        late = max(0, block.num_tokens - self.last_queries - block.first)
        shares = block.local_sum(block.probabilities, self.window, self.first_tokens)[:, late:]
        count = torch.full_like(shares[:, 0] if shares.shape[1] else block.probabilities[:, 0, 0], shares.shape[1])
        self._sums[layer] = self._sums.get(layer, 0) + torch.stack([shares.sum(-1), count]).double()

    def locality(self, layer: int) -> Tensor:
        """(H,), all equal, in [0, 1]."""
        share, count = self._sums[layer].sum(-1)
        return (share / count).expand(self._sums[layer].shape[1])


@dataclasses.dataclass(frozen=True)
class Lazy(AttentionRanking):
    """Lazy layers.

    Args:
        first_tokens: that count as seen by a lazy layer, beside the window.
        last_queries: how many of the last queries are looked at: they hold the question and the answer.
    """

    name = "lazy"
    summary = (
        "Lazy layers (after LightTransfer): those whose last queries attend to the first and the recent tokens only."
    )

    first_tokens: int = 4
    last_queries: int = 64

    def __post_init__(self) -> None:
        check_integer("first_tokens", self.first_tokens, 0)
        check_integer("last_queries", self.last_queries, 1)

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return LazyRatio(subject, self.first_tokens, self.last_queries)

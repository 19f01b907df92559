"""QAdA, query-adaptive attention (paper B.3.4; after Donhauser et al., 2025): the mass in the window against a Gaussian
estimate of the mass outside it."""

import dataclasses

import torch
from torch import Tensor

from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class GaussianShare:
    """Mean over queries of A / (A + B): A the sum of exp(logit) over the window (and sinks), and
    B = n * exp(mean + variance / 2) over the n other keys, the expectation if their logits were Gaussian. A query with
    nothing outside its window counts 1."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._shares: dict[int, Tensor] = {}
        self._queries: dict[int, int] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the share of each query."""
        start, seen = block.local(self.subject.window, self.subject.sinks)
        sinks = min(self.subject.sinks, start)
        outer = block.logits[..., sinks:start]
        inner = block.logits[..., start:]
        near = torch.where(seen, inner, -torch.inf)
        inside = torch.cat([block.logits[..., :sinks], near], dim=-1).logsumexp(-1)
        far = ~seen & (inner[0] > -torch.inf)
        beyond = torch.where(far, inner, 0)
        count = outer.shape[-1] + far.sum(-1)
        mean = (outer.sum(-1) + beyond.sum(-1)) / count.clamp(min=1)
        square = (_sum_of_squares(outer) + _sum_of_squares(beyond)) / count.clamp(min=1)
        outside = count.log() + mean + (square - mean**2) / 2  # -inf where there is nothing outside
        self._shares[layer] = self._shares.get(layer, 0) + (inside - outside).sigmoid().double().sum(-1)
        self._queries[layer] = self._queries.get(layer, 0) + block.logits.shape[1]

    def locality(self, layer: int) -> Tensor:
        """(H,), in (0, 1]."""
        return self._shares[layer] / self._queries[layer]


def _sum_of_squares(values: Tensor) -> Tensor:
    return torch.linalg.vecdot(values, values)


@dataclasses.dataclass(frozen=True)
class Qada(AttentionRanking):
    """Query-adaptive attention (paper B.3.4): mass in the window against a Gaussian estimate of what is outside."""

    name = "qada"
    summary = (
        "Query-adaptive attention (paper B.3.4): mass in the window against a Gaussian estimate of what is outside."
    )

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return GaussianShare(subject)

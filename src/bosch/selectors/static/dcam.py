"""DCAM, distance-conditioned attention mass (paper B.3.1; after Clark et al., 2019): the share of a head's attention
that lies in the window."""

import dataclasses

import torch
from torch import Tensor

from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class WindowMass:
    """Attention mass at lags 0 to W - 1 (and on sinks) over the mass at all lags, summed over queries and examples."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._sums: dict[int, Tensor] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the block's mass, inside and in all."""
        inside = block.local_sum(block.probabilities, self.subject.window, self.subject.sinks).sum(-1)
        sums = torch.stack([inside, block.probabilities.sum((-2, -1))]).double()
        self._sums[layer] = self._sums.get(layer, 0) + sums

    def locality(self, layer: int) -> Tensor:
        """(H,), in [0, 1]."""
        inside, total = self._sums[layer]
        return inside / total


@dataclasses.dataclass(frozen=True)
class Dcam(AttentionRanking):
    """Distance-conditioned attention mass (paper B.3.1): the share of a head's attention that lies in the window."""

    name = "dcam"
    summary = (
        "Distance-conditioned attention mass (paper B.3.1): the share of a head's attention that lies in the window."
    )

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return WindowMass(subject)

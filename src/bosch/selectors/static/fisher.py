"""Fisher (paper B.3.6; after Kwon et al., 2022): the share of the attention that matters to the loss, and lies in the
window."""

import dataclasses

import torch
from torch import Tensor

from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class WindowFisher:
    """Sum of (gradient of an example's answer NLL with respect to a probability * the probability)^2 at lags 0 to W - 1
    (and on sinks), over the sum at all lags."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._sums: dict[int, Tensor] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the block's information, inside and in all."""
        assert block.gradients is not None
        information = (block.gradients * block.probabilities).square_()
        inside = block.local_sum(information, self.subject.window, self.subject.sinks).double().sum(-1)
        total = information.sum(-1).double().sum(-1)
        self._sums[layer] = self._sums.get(layer, 0) + torch.stack([inside, total])

    def locality(self, layer: int) -> Tensor:
        """(H,), in [0, 1]; 1 for a head that the answers do not depend on."""
        inside, total = self._sums[layer]
        return torch.where(total > 0, inside / total, 1)


@dataclasses.dataclass(frozen=True)
class Fisher(AttentionRanking):
    """Fisher information (paper B.3.6): the share of the attention that matters to the loss, and lies in the window."""

    name = "fisher"
    summary = (
        "Fisher information (paper B.3.6): the share of the attention that matters to the loss, and lies in the window."
    )
    over = "gradients"

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return WindowFisher(subject)

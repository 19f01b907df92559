"""APL, answer-centric peak lag (paper B.3.2; after Pascual et al., 2021): how far back the last answer token looks."""

import collections
import dataclasses

import torch
from torch import Tensor

from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class PeakLag:
    """1 - min(1, median lag / W), where an example's lag is that of the largest attention of its last token."""

    def __init__(self, subject: Subject) -> None:
        self.window = subject.window
        self._lags: dict[int, list[Tensor]] = collections.defaultdict(list)

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Keep the lag of the sequence's last query."""
        if block.probabilities.shape[-1] == block.num_tokens:
            self._lags[layer].append(block.num_tokens - 1 - block.probabilities[:, -1].argmax(-1))

    def locality(self, layer: int) -> Tensor:
        """(H,), in [0, 1]; the median of an even number of examples lies between its two middle ones."""
        median = torch.stack(self._lags[layer]).double().quantile(0.5, dim=0)
        return 1 - (median / self.window).clamp(max=1)


@dataclasses.dataclass(frozen=True)
class Apl(AttentionRanking):
    """Answer-centric peak lag (paper B.3.2): how far back the last answer token looks."""

    name = "apl"
    summary = "Answer-centric peak lag (paper B.3.2): how far back the last answer token looks."

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return PeakLag(subject)

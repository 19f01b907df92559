"""Razor (paper B.3.5; after RazorAttention, Tang et al., 2025): heads that find an earlier copy of the current token
are retrieval heads, and stay full.

The probe is a block of K random tokens four times over. K is a quarter of the longest calibration example, so that the
heads are asked about the distances that they are calibrated for. The paper writes the induction source as m - 1 - K;
the token that follows the earlier copy of token m, which induction heads attend to, is m + 1 - K, and that is measured.
"""

import dataclasses
import random

import torch
from torch import Tensor

from bosch.common.options import check_integer
from bosch.probing import AttentionBlock, Statistic, Subject
from bosch.selectors.static.ranking import AttentionRanking


class Retrieval:
    """Minus the larger of two z-scores over all heads of the model: of the mean attention to the earlier copy of a
    token (echo), and to the token that follows it (induction)."""

    def __init__(self, period: int) -> None:
        self.period = period
        self._sums: dict[int, Tensor] = {}

    def add(self, layer: int, block: AttentionBlock) -> None:
        """Add the attention of each query from K on to its two sources."""
        num_keys = block.probabilities.shape[-1]
        query = torch.arange(min(max(block.first, self.period), num_keys), num_keys, device=block.probabilities.device)
        sources = torch.stack([query - self.period, query - self.period + 1])
        attention = block.probabilities[:, query - block.first, sources]
        self._sums[layer] = self._sums.get(layer, 0) + attention.double().sum(-1)

    def locality(self, layer: int) -> Tensor:
        """(H,)."""
        everywhere = torch.cat([self._sums[other] for other in sorted(self._sums)])
        mean, deviation = everywhere.mean(0), everywhere.std(0, correction=0)
        return -((self._sums[layer] - mean) / deviation).amax(-1)


def period(subject: Subject, repeats: int) -> int:
    """K, tokens of the block that is repeated."""
    return max(2, max(len(example.input_ids) for example in subject.examples) // repeats)


def probe(subject: Subject, repeats: int) -> list[int]:
    """K random tokens, over and over."""
    rng = random.Random(f"razor {subject.seed}")
    block = [rng.randrange(subject.decoder.config.vocab_size) for _ in range(period(subject, repeats))]
    return block * repeats


@dataclasses.dataclass(frozen=True)
class Razor(AttentionRanking):
    """Retrieval heads by their echo and induction scores.

    Args:
        repeats: how often the block of random tokens comes.
    """

    name = "razor"
    summary = "RazorAttention (paper B.3.5): heads that find an earlier copy of the current token stay full."
    over = "own"

    repeats: int = 4

    def __post_init__(self) -> None:
        check_integer("repeats", self.repeats, 2)

    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""
        return Retrieval(period(subject, self.repeats))

    def sequences(self, subject: Subject) -> list[list[int]]:
        """The block of K random tokens, repeated."""
        return [probe(subject, self.repeats)]

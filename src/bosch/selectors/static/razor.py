"""Razor (paper B.3.5; after RazorAttention, Tang et al., 2025): heads that find an earlier copy of the current token
are retrieval heads, and stay full.

The probe is a block of K random tokens four times over. K is a quarter of the longest calibration example, so that the
heads are asked about the distances that they are calibrated for. The paper writes the induction source as m - 1 - K;
the token that follows the earlier copy of token m, which induction heads attend to, is m + 1 - K, and that is measured.
"""

import random

import torch
from torch import Tensor

from bosch.probing import AttentionBlock, Subject
from bosch.selectors.static.measuring import AttentionMeasure
from bosch.selectors.static.ranking import Ranking

REPEATS = 4


class Retrieval:
    """Minus the larger of two z-scores over all heads of the model: of the mean attention to the earlier copy of a
    token (echo), and to the token that follows it (induction)."""

    def __init__(self, subject: Subject) -> None:
        self.period = period(subject)
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


def period(subject: Subject) -> int:
    """K, tokens of the block that is repeated."""
    return max(2, max(len(example.input_ids) for example in subject.examples.examples) // REPEATS)


def probe(subject: Subject) -> list[list[int]]:
    """One sequence of 4 K tokens, K of them random."""
    rng = random.Random(f"razor {subject.seed}")
    block = [rng.randrange(subject.decoder.config.vocab_size) for _ in range(period(subject))]
    return [block * REPEATS]


RAZOR = Ranking("razor", AttentionMeasure(Retrieval, over="own", sequences=probe))

"""What is kept of the attention that streams by."""

from typing import Protocol

from torch import Tensor

from bosch.probing.blocks import AttentionBlock


class Statistic(Protocol):
    """Collects one number per query head from blocks of attention; memory at most linear in T."""

    def add(self, layer: int, block: AttentionBlock) -> None:
        """See the next block; those of a sequence come layer by layer, and in each from the first query to the last."""
        ...

    def locality(self, layer: int) -> Tensor:
        """(H,) float64, for each query head of the layer: the larger, the more local."""
        ...

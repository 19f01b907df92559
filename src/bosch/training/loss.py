"""What is minimised."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

Loss = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]
"""From a model and a batch of `PackedSequences.batch` to a scalar, the mean over the batch's targets."""


def language_modeling_loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """The mean negative log-likelihood of the targets, in nats, as the model itself computes it (fused, where it can).

    The model makes no cache: packed documents would then see each other.
    """
    return model(**batch, use_cache=False).loss

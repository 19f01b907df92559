"""What a static method looks at, and what it keeps of the attention that streams by."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from bosch.calibration import ExampleSet
from bosch.decoder import Decoder
from bosch.probing.blocks import AttentionBlock

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def _nothing() -> None:
    """Nobody listens."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """The full model, the calibration set, and what "local" means.

    Args:
        decoder: the model.
        examples: prompts with their answers.
        window: W in tokens, the query's own position included.
        sinks: S, first tokens that sliding units would see as well; attention to them counts as local.
        seed: of whatever a method draws at random.
        advance: called after every sequence that was run.
        tokenizer: the model's, for methods that write texts of their own.
    """

    decoder: Decoder
    examples: ExampleSet
    window: int
    sinks: int = 0
    seed: int = 0
    advance: Callable[[], None] = _nothing
    tokenizer: "PreTrainedTokenizerBase | None" = None


class Statistic(Protocol):
    """Collects one number per query head from blocks of attention; memory at most linear in T."""

    def add(self, layer: int, block: AttentionBlock) -> None:
        """See the next block; those of a sequence come layer by layer, and in each from the first query to the last."""
        ...

    def locality(self, layer: int) -> Tensor:
        """(H,) float64, for each query head of the layer: the larger, the more local."""
        ...

"""Whom a static method looks at."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from bosch.calibration import ExampleSet
from bosch.decoder import Decoder

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

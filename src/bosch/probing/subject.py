"""Whom a static method looks at."""

import dataclasses
from collections.abc import Callable

from bosch.calibration import ExampleSet
from bosch.decoder import Decoder


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
    """

    decoder: Decoder
    examples: ExampleSet
    window: int
    sinks: int = 0
    seed: int = 0
    advance: Callable[[], None] = _nothing

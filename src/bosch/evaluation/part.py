"""What an evaluation is divided into: a part is measured whole, and then kept."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bosch.common.progress import Progress
from bosch.errors import BoschError
from bosch.models.positions import num_positions as positions_of

SCORE = "score"
"""The score of a task that has one."""


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """What is measured: a loaded model.

    Args:
        model: in eval mode.
        tokenizer: the model's.
        progress: what a terminal is shown.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    progress: Progress

    def check_length(self, num_positions: int) -> None:
        """Refuse a length that the model was not made for.

        Raises:
            BoschError: it has fewer positions.
        """
        limit = positions_of(self.model.config)
        if limit is not None and limit < num_positions:
            raise BoschError(
                f"the model has {limit} positions, and {num_positions} are asked for; choose shorter --lengths, or "
                "extend the positions by --yarn"
            )


@dataclasses.dataclass(frozen=True)
class Part:
    """One task, at one length where it has lengths.

    Args:
        group: what it is reported with.
        task: its name.
        length: in tokens.
        num_positions: that the model needs; 0 = the task finds out itself.
        num_examples: what the bar counts to; 0 = it has a bar of its own.
        measure: gives the fields of a row that are not named here.
    """

    group: str
    task: str
    length: int | None
    num_positions: int
    num_examples: int
    measure: Callable[[LoadedModel], Mapping[str, Any]]

    @property
    def name(self) -> str:
        """Task and length."""
        return self.task if self.length is None else f"{self.task} @ {self.length}"

"""What each step of a training takes and how far it goes: functions of the step's number alone."""

import dataclasses
import math
from collections.abc import Sequence

from bosch.errors import BoschError


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """How the sequences of a step are divided.

    Args:
        micro_batch: sequences that a process takes at once.
        accumulation: how often it does so in a step.
        world_size: processes.
    """

    micro_batch: int
    accumulation: int
    world_size: int

    @property
    def sequences_per_step(self) -> int:
        """Of all processes together."""
        return self.micro_batch * self.accumulation * self.world_size

    def micro_batches(self, sequences: Sequence[int], rank: int) -> list[Sequence[int]]:
        """What one process takes of a step's sequences, in turn. Which sequences a step has does not depend on how they
        are divided."""
        starts = range(rank * self.micro_batch, self.sequences_per_step, self.micro_batch * self.world_size)
        return [sequences[start : start + self.micro_batch] for start in starts]


def plan_batches(tokens_per_step: int, length: int, micro_batch: int, world_size: int) -> BatchPlan:
    """The plan whose steps have exactly so many tokens.

    Args:
        tokens_per_step: of all processes together.
        length: N, tokens of a sequence.
        micro_batch: sequences that a process takes at once.
        world_size: processes.

    Raises:
        BoschError: they do not divide; the numbers next to it that do are given.
    """
    at_once = length * micro_batch * world_size
    if tokens_per_step % at_once:
        near = [count for count in (tokens_per_step // at_once, tokens_per_step // at_once + 1) if count]
        raise BoschError(
            f"tokens_per_step must be a multiple of {length} tokens x {micro_batch} sequences x {world_size} processes "
            f"= {at_once}, got {tokens_per_step}; near it are {' and '.join(str(count * at_once) for count in near)}"
        )
    return BatchPlan(micro_batch, tokens_per_step // at_once, world_size)


def learning_rate(step: int, num_steps: int, peak: float, warmup: float) -> float:
    """The learning rate of a step, counted from 0 (paper B.5: cosine, warmed up): it rises in equal parts to the peak,
    which the last step of the warm-up has, and falls along half a cosine towards 0.

    Args:
        step: from 0 to num_steps - 1.
        num_steps: of the whole training.
        peak: the largest learning rate.
        warmup: share of the steps that rise, from 0 to 1.
    """
    num_rising = round(warmup * num_steps)
    if step < num_rising:
        return peak * (step + 1) / num_rising
    return peak * 0.5 * (1 + math.cos(math.pi * (step - num_rising) / (num_steps - num_rising)))


def is_due(every: int | None, before: int, after: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; never, if `every` is None."""
    return every is not None and after // every > before // every

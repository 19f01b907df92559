"""Unit scores and the masks cut from them: all statistics of one kind of pass share one pass."""

import abc
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal

from torch import Tensor

from bosch.decoder import Decoder
from bosch.heads import Unit
from bosch.probing import Statistic, Subject, gather, gather_gradients
from bosch.scoring.objective import Cost
from bosch.selectors.method import Measured, Method, Problem, Selection, StageListener, UnitScores

BACKWARD_PASSES = 4
"""Full passes of a pass with gradients: forward, forward again layer by layer, and twice as much backward."""


@dataclasses.dataclass(frozen=True)
class Ranking(Method):
    """A method that gives every unit a score once, and at each ratio localizes the units with the highest scores."""

    @abc.abstractmethod
    def measure(self, problem: Problem, on_stage: StageListener) -> Measured:
        """The scores; the larger, the more local.

        Args:
            problem: with a subject.
            on_stage: hears how far it has come.
        """

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Rank and cut; arguments as in `Method`. Scores that are known are not measured again."""
        found = problem.measured.get(self.name) or self.measure(problem, on_stage)
        chosen = most_local(found.scores, problem.layout.num_localized(ratio))
        return Selection(problem.full.localize(chosen), {"method": self.name})


@dataclasses.dataclass(frozen=True)
class AttentionRanking(Ranking):
    """Scores that are read off the full model's attention.

    Class attributes:
        over: what is run: the calibration examples, the same with gradients of the answer NLL, or sequences of the
            method's own.
    """

    over: ClassVar[Literal["examples", "gradients", "own"]] = "examples"

    @abc.abstractmethod
    def statistic(self, subject: Subject) -> Statistic:
        """Begin to collect."""

    def sequences(self, subject: Subject) -> list[list[int]]:
        """Token ids of what is run."""
        return [list(example.input_ids) for example in subject.examples]

    def measure(self, problem: Problem, on_stage: StageListener) -> Measured:
        """Read the attention for this method alone; arguments as in `Ranking`."""
        assert problem.subject, "static methods look inside the model"
        ((_, measured),) = _read_attention([self], problem.subject, on_stage)
        return measured


def measure_rankings(
    rankings: Sequence[Ranking], problem: Problem, on_stage: StageListener
) -> Iterator[tuple[str, Measured]]:
    """Unit scores by several methods, as they are found; those that read the attention over the same data share a pass.

    Args:
        rankings: the methods.
        problem: with a subject.
        on_stage: hears of each pass and the number of its sequences.

    Yields:
        The name of a method, and its scores.
    """
    assert problem.subject, "static methods look inside the model"
    sharing = [one for one in rankings if isinstance(one, AttentionRanking) and one.over != "own"]
    for over in ("examples", "gradients"):
        if group := [one for one in sharing if one.over == over]:
            yield from _read_attention(group, problem.subject, on_stage)
    for one in rankings:
        if one not in sharing:
            yield one.name, one.measure(problem, on_stage)


def unit_scores(decoder: Decoder, locality: Callable[[int], Tensor]) -> UnitScores:
    """The mean over the query heads of each KV group (paper B.3).

    Args:
        decoder: gives the units.
        locality: for a layer, (H,) scores of its query heads.
    """
    scores: dict[Unit, float] = {}
    for layer in decoder.layout.eligible_layers:
        groups = locality(layer).view(decoder.layout.units_per_layer[layer], -1).mean(1)
        scores |= {(layer, head): value for head, value in enumerate(groups.tolist())}
    return scores


def _read_attention(
    rankings: Sequence[AttentionRanking], subject: Subject, on_stage: StageListener
) -> Iterator[tuple[str, Measured]]:
    """One pass for several methods, all over the same data."""
    started, first = time.monotonic(), rankings[0]
    statistics = {one.name: one.statistic(subject) for one in rankings}
    sequences = first.sequences(subject)
    on_stage(f"reading attention: {', '.join(statistics)}", len(sequences))
    if first.over == "gradients":
        gather_gradients(subject, list(statistics.values()))
        full_passes: float = BACKWARD_PASSES
    else:
        gather(subject, sequences, list(statistics.values()))
        full_passes = sum(map(len, sequences)) / sum(len(example.input_ids) for example in subject.examples)
    cost = Cost(0, full_passes, time.monotonic() - started)
    for name, statistic in statistics.items():
        yield name, Measured(unit_scores(subject.decoder, statistic.locality), cost)


def most_local(scores: UnitScores, count: int) -> list[Unit]:
    """The units with the highest scores; of equals, the lower layer and head first."""
    return sorted(scores, key=lambda unit: (-scores[unit], unit))[:count]

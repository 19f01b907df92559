"""Measuring unit scores: all statistics of one kind of pass share one pass."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from torch import Tensor

from bosch.cost import Cost
from bosch.decoder import Decoder
from bosch.heads import Unit
from bosch.probing import Statistic, Subject, gather, gather_gradients
from bosch.selectors.contract import Measured, Problem, StageListener, UnitScores

BACKWARD_PASSES = 4
"""Full passes of a pass with gradients: forward, forward again layer by layer, and twice as much backward."""


@dataclasses.dataclass(frozen=True)
class AttentionMeasure:
    """Scores that are read off the full model's attention.

    Args:
        statistic: begins to collect, for a subject.
        over: what is run: the calibration examples, the same with gradients of the answer NLL, or sequences of the
            statistic's own.
        sequences: the statistic's own, for a subject.
    """

    statistic: Callable[[Subject], Statistic]
    over: Literal["examples", "gradients", "own"] = "examples"
    sequences: Callable[[Subject], list[list[int]]] | None = None


Measure = AttentionMeasure | Callable[[Problem, StageListener], Measured]


def measure(
    measures: Mapping[str, Measure], problem: Problem, on_stage: StageListener
) -> Iterator[tuple[str, Measured]]:
    """Unit scores by several methods, as they are found; those that read the attention over the same data share a pass.

    Args:
        measures: by the name of the method.
        problem: with a subject.
        on_stage: hears of each pass and the number of its sequences.
    """
    assert problem.subject, "static methods look inside the model"
    for over in ("examples", "gradients"):
        shared = {name: m for name, m in measures.items() if isinstance(m, AttentionMeasure) and m.over == over}
        if shared:
            yield from _read_attention(shared, problem.subject, over, on_stage)
    for name, one in measures.items():
        if isinstance(one, AttentionMeasure) and one.over == "own":
            yield from _read_attention({name: one}, problem.subject, "own", on_stage)
        elif not isinstance(one, AttentionMeasure):
            yield name, one(problem, on_stage)


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
    measures: Mapping[str, AttentionMeasure], subject: Subject, over: str, on_stage: StageListener
) -> Iterator[tuple[str, Measured]]:
    started = time.monotonic()
    statistics = {name: one.statistic(subject) for name, one in measures.items()}
    sequences = [list(example.input_ids) for example in subject.examples.examples]
    tokens = sum(map(len, sequences))
    if over == "own":
        (one,) = measures.values()
        assert one.sequences
        sequences = one.sequences(subject)
    on_stage(f"reading attention: {', '.join(measures)}", len(sequences))
    if over == "gradients":
        gather_gradients(subject, list(statistics.values()))
    else:
        gather(subject, sequences, list(statistics.values()))
    full_passes = BACKWARD_PASSES if over == "gradients" else sum(map(len, sequences)) / tokens
    cost = Cost(0, full_passes, time.monotonic() - started)
    for name, statistic in statistics.items():
        yield name, Measured(unit_scores(subject.decoder, statistic.locality), cost)

"""NLL (after arXiv 2606.27791): how far the answers' NLL rises when a layer, or a unit, slides alone."""

import dataclasses
from collections.abc import Iterable

from bosch.heads import Unit
from bosch.selectors.blackbox import units_of
from bosch.selectors.method import Measured, Problem, StageListener
from bosch.selectors.static.ranking import Ranking


@dataclasses.dataclass(frozen=True)
class Nll(Ranking):
    """Minus the rise of the NLL when a unit slides alone."""

    name = "nll"
    summary = "How far the answers' NLL rises when a KV head slides alone."

    def measure(self, problem: Problem, on_stage: StageListener) -> Measured:
        """One evaluation a unit."""
        on_stage("sliding each KV head alone", problem.layout.num_units + 1)
        return _measure(problem, [(unit,) for unit in problem.layout.units()])


@dataclasses.dataclass(frozen=True)
class NllLayer(Ranking):
    """Minus the rise of the NLL when a layer slides alone, the same for all of its units."""

    name = "nll-layer"
    summary = "How far the answers' NLL rises when a layer slides alone (after arXiv 2606.27791)."

    def measure(self, problem: Problem, on_stage: StageListener) -> Measured:
        """One evaluation a layer."""
        on_stage("sliding each layer alone", len(problem.layout.eligible_layers) + 1)
        return _measure(problem, [units_of(problem.layout, [layer]) for layer in problem.layout.eligible_layers])


def _measure(problem: Problem, parts: Iterable[tuple[Unit, ...]]) -> Measured:
    objective = problem.objective
    full = objective.score(problem.full).nll
    scores: dict[Unit, float] = {}
    asked = [problem.full]
    for part in sorted(parts, reverse=True):  # from the top down: one pass leaves its states for all below
        asked.append(problem.full.localize(part))
        rise = objective.score(asked[-1]).nll - full
        scores |= dict.fromkeys(part, -rise)
    return Measured(scores, objective.scorer.cost(asked))

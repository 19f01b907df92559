"""NLL (after arXiv 2606.27791): how far the answers' NLL rises when a layer, or a unit, slides alone."""

from collections.abc import Iterable

from bosch.heads import Unit
from bosch.selectors.contract import Measured, Problem, StageListener
from bosch.selectors.joint import units_of
from bosch.selectors.static.ranking import Ranking


def _per_unit(problem: Problem, on_stage: StageListener) -> Measured:
    """Minus the rise of the NLL when a unit slides alone."""
    on_stage("sliding each unit alone", problem.layout.num_units + 1)
    return _measure(problem, [(unit,) for unit in problem.layout.units()])


def _per_layer(problem: Problem, on_stage: StageListener) -> Measured:
    """Minus the rise of the NLL when a layer slides alone, the same for all of its units."""
    on_stage("sliding each layer alone", len(problem.layout.eligible_layers) + 1)
    return _measure(problem, [units_of(problem.layout, [layer]) for layer in problem.layout.eligible_layers])


def _measure(problem: Problem, parts: Iterable[tuple[Unit, ...]]) -> Measured:
    assert problem.subject
    scorer = problem.objective.scorer
    scorer.rebase(problem.full)
    full = scorer.score(problem.full).nll
    scores: dict[Unit, float] = {}
    asked = [problem.full]
    for part in sorted(parts, reverse=True):  # from the top down: one pass leaves its states for all below
        asked.append(problem.full.localize(part))
        rise = scorer.score(asked[-1]).nll - full
        scores |= dict.fromkeys(part, -rise)
    return Measured(scores, scorer.cost(asked))


NLL = Ranking("nll", _per_unit)
NLL_LAYER = Ranking("nll-layer", _per_layer)

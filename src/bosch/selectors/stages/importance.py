"""Stage 1, layer importance (paper 2.2.1, Algorithm 1): how the score falls as one layer after the other slides."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bosch.heads import HeadMask
from bosch.scoring.objective import Objective
from bosch.selectors.blackbox import describe, search_units, units_of
from bosch.selectors.method import StageListener


@dataclasses.dataclass(frozen=True)
class Importance:
    """What stage 1 found.

    Args:
        mask: every eligible layer localized by its quota.
        scores: for each eligible layer, the best normalized score once it and all layers above were localized.
        searches: for each eligible layer, top first, the search as plain data.
    """

    mask: HeadMask
    scores: dict[int, float]
    searches: tuple[dict[str, Any], ...]


def layer_importance(
    objective: Objective,
    quotas: Mapping[int, int],
    *,
    budget: int,
    seed: int,
    on_stage: StageListener,
    optimizer: str | None = None,
) -> Importance:
    """Localize layers from the top to the bottom, each by a small search on top of those above.

    Args:
        objective: the score to be maximised.
        quotas: for each eligible layer, how many of its units slide.
        budget: evaluations per layer (kappa).
        seed: of the optimizers.
        on_stage: hears the number of evaluations planned.
        optimizer: of all searches; None: as `choose_optimizer` has it.
    """
    mask = objective.scorer.full
    on_stage("stage 1: layer importance", budget * len(quotas))
    scores: dict[int, float] = {}
    searches = []
    for layer in sorted(quotas, reverse=True):
        chosen = {units_of(mask.layout, [layer]): quotas[layer]}
        mask, outcome = search_units(objective, mask, chosen, budget=budget, seed=seed, start=mask, optimizer=optimizer)
        scores[layer] = -outcome.loss
        searches.append({"layer": layer, "quota": quotas[layer], **describe(outcome)})
    return Importance(mask, scores, tuple(searches))

"""Stage 1, layer importance (paper 2.2.1, Algorithm 1): how the score falls as one layer after the other slides."""

import dataclasses
from typing import Any

from bosch.heads import HeadMask, quota
from bosch.objective import Objective
from bosch.selectors.contract import StageListener
from bosch.selectors.joint import describe, search_layers


@dataclasses.dataclass(frozen=True)
class Importance:
    """What stage 1 found.

    Args:
        mask: every eligible layer localized by `ceil(ratio * units)`: the ablation BOSCH-single.
        scores: for each eligible layer, the best normalized score once it and all layers above were localized.
        searches: for each eligible layer, top first, the search as plain data.
    """

    mask: HeadMask
    scores: dict[int, float]
    searches: tuple[dict[str, Any], ...]


def layer_importance(
    objective: Objective, ratio: float, *, budget: int, seed: int, on_stage: StageListener
) -> Importance:
    """Localize layers from the top to the bottom, each by a small search on top of those above.

    Args:
        objective: the score to be maximised.
        ratio: share of each layer's units that slide.
        budget: evaluations per layer (kappa).
        seed: of the optimizers.
        on_stage: hears the number of evaluations planned.
    """
    mask = objective.scorer.full
    layers = objective.scorer.layout.eligible_layers
    on_stage("stage 1: layer importance", budget * len(layers))
    scores: dict[int, float] = {}
    searches = []
    for layer in reversed(layers):
        ones = quota(ratio, mask.layout.units_per_layer[layer])
        mask, outcome = search_layers(objective, mask, {layer: ones}, budget=budget, seed=seed, start=mask)
        scores[layer] = -outcome.loss
        searches.append({"layer": layer, "quota": ones, **describe(outcome)})
    return Importance(mask, scores, tuple(searches))

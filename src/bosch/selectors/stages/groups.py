"""Stage 3, grouped selection (paper 2.2.3, Algorithm 3): layers of one ratio are searched together, easiest first."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from bosch.heads import HeadMask
from bosch.scoring.objective import Objective
from bosch.selectors.blackbox import describe, search_units, units_of
from bosch.selectors.method import StageListener

MAX_VARIABLES = 50
"""Units that one search may have (paper B.2); a larger group is split into equal parts."""


def select_in_groups(
    objective: Objective,
    quotas: Mapping[int, int],
    start: HeadMask,
    *,
    budget: int,
    seed: int,
    on_stage: StageListener,
    optimizer: str | None = None,
) -> tuple[HeadMask, list[dict[str, Any]]]:
    """Choose which units slide, given how many of each layer do.

    Args:
        objective: the score to be maximised.
        quotas: how many units of each eligible layer slide.
        start: choices to begin with; each layer's row, brought to its quota, is tried first.
        budget: evaluations per layer (kappa); a group has as many times that as it has layers.
        seed: of the optimizers.
        on_stage: hears the number of evaluations planned.
        optimizer: of all searches; None: as `choose_optimizer` has it.

    Returns:
        The mask, and each search as plain data.
    """
    scorer = objective.scorer
    units = scorer.layout.units_per_layer
    mask = scorer.full.localize(units_of(scorer.layout, (layer for layer in quotas if quotas[layer] == units[layer])))
    groups = make_groups({layer: Fraction(ones, units[layer]) for layer, ones in quotas.items()}, units)
    on_stage("stage 3: grouped selection", budget * sum(map(len, groups)))
    searches = []
    for group in groups:
        mask, outcome = search_units(
            objective,
            mask,
            {units_of(scorer.layout, [layer]): quotas[layer] for layer in group},
            budget=budget * len(group),
            seed=seed,
            start=start,
            optimizer=optimizer,
        )
        searches.append({"layers": list(group), "quotas": [quotas[layer] for layer in group], **describe(outcome)})
    return mask, searches


def make_groups(ratios: Mapping[int, Fraction], units: Sequence[int]) -> list[tuple[int, ...]]:
    """Layers of one ratio, largest ratio first, none with 0 or 1; equal parts of at most 50 units (or one layer)."""
    groups: list[tuple[int, ...]] = []
    for ratio in sorted({ratio for ratio in ratios.values() if 0 < ratio < 1}, reverse=True):
        groups += split_layers([layer for layer in sorted(ratios) if ratios[layer] == ratio], units)
    return groups


def split_layers(layers: Sequence[int], units: Sequence[int]) -> list[tuple[int, ...]]:
    """Layers in their order, cut into parts of equal numbers of layers and at most 50 units (or one layer)."""
    most = max(1, MAX_VARIABLES // max(units[layer] for layer in layers))
    num_parts = -(-len(layers) // most)
    bounds = [part * len(layers) // num_parts for part in range(num_parts + 1)]
    return [tuple(layers[a:b]) for a, b in itertools.pairwise(bounds)]

"""Stage 2, adaptive ratios (paper 2.2.2): the layers that bear it slide more, and the sum is the budget exactly.

Algorithm 2 of the paper is not in the text that is public; this is our reading of its description.
"""

import dataclasses
from collections.abc import Mapping, Sequence

LEVELS = 4
"""Coarse ratios are the multiples of 1/4, rounded to whole units."""


@dataclasses.dataclass(frozen=True)
class AdaptiveRatios:
    """What stage 2 decided, by layer.

    Args:
        drops: relative fall of the normalized score when the layer was localized, in [0, inf).
        weights: drops over gamma, at most 1; lower is easier to localize.
        quotas: how many units of the layer slide.
    """

    drops: dict[int, float]
    weights: dict[int, float]
    quotas: dict[int, int]


def adaptive_ratios(
    scores: Mapping[int, float], units: Mapping[int, int], num_localized: int, gamma: float
) -> AdaptiveRatios:
    """Give every layer a quota of sliding units.

    Args:
        scores: stage 1's normalized best score of each layer, with it and all layers above localized.
        units: how many units each of these layers has.
        num_localized: what the quotas sum to; `ceil(ratio * N)`.
        gamma: a relative drop of this size or more gives a layer the full weight of 1; the paper gives 0.2.
    """
    drops = relative_drops(scores)
    weights = {layer: min(1.0, drop / gamma) for layer, drop in drops.items()}
    easiest_first = sorted(scores, key=lambda layer: (weights[layer], layer))
    quotas = _bucket(easiest_first, units)
    for layers in ([layer for layer in easiest_first if weights[layer] < 1], easiest_first):
        _raise(quotas, layers, units, num_localized)
    _lower(quotas, easiest_first, units, num_localized)
    return AdaptiveRatios(drops, weights, {layer: quotas[layer] for layer in sorted(quotas)})


def relative_drops(scores: Mapping[int, float]) -> dict[int, float]:
    """max(0, s[l+1] - s[l]) / max(s[l+1], eps) from the top down, where the original model's score is 1."""
    drops, above = {}, 1.0
    for layer in sorted(scores, reverse=True):
        drops[layer] = max(0.0, above - scores[layer]) / max(above, 1e-6)
        above = scores[layer]
    return drops


def levels_of(num_units: int) -> list[int]:
    """The numbers of sliding units that come nearest to the multiples of 1/4: for 8 units 0, 2, 4, 6, 8."""
    return sorted({(2 * step * num_units + LEVELS) // (2 * LEVELS) for step in range(LEVELS + 1)})


def _bucket(easiest_first: Sequence[int], units: Mapping[int, int]) -> dict[int, int]:
    """Buckets of equal size: the easiest layers at their highest level, the hardest at their lowest."""
    quotas = {}
    for rank, layer in enumerate(easiest_first):
        levels = levels_of(units[layer])
        quotas[layer] = levels[-1 - rank * len(levels) // len(easiest_first)]
    return quotas


def _raise(quotas: dict[int, int], layers: Sequence[int], units: Mapping[int, int], num_localized: int) -> None:
    """While too few units slide, move the layers to their next level, one after the other, in sweeps; the last move is
    cut short where a whole level would go too far."""
    while movable := [layer for layer in layers if quotas[layer] < units[layer]]:
        for layer in movable:
            missing = num_localized - sum(quotas.values())
            if missing <= 0:
                return
            next_level = min(level for level in levels_of(units[layer]) if level > quotas[layer])
            quotas[layer] += min(next_level - quotas[layer], missing)


def _lower(quotas: dict[int, int], easiest_first: Sequence[int], units: Mapping[int, int], num_localized: int) -> None:
    """The same downwards while too many slide, the hardest first."""
    while movable := [layer for layer in reversed(easiest_first) if quotas[layer] > 0]:
        for layer in movable:
            excess = sum(quotas.values()) - num_localized
            if excess <= 0:
                return
            next_level = max(level for level in levels_of(units[layer]) if level < quotas[layer])
            quotas[layer] -= min(quotas[layer] - next_level, excess)

"""BOSCH (paper 2.2): layer importance, adaptive ratios, grouped selection."""

from bosch.objective import Objective
from bosch.selectors.bosch.groups import select_in_groups
from bosch.selectors.bosch.importance import layer_importance
from bosch.selectors.bosch.ratios import adaptive_ratios
from bosch.selectors.contract import Selection, StageListener


def bosch(objective: Objective, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """The paper's three stages; arguments as in `Selector`."""
    layout = objective.scorer.layout
    importance = layer_importance(objective, ratio, budget=budget, seed=seed, on_stage=on_stage)
    units = {layer: layout.units_per_layer[layer] for layer in layout.eligible_layers}
    ratios = adaptive_ratios(importance.scores, units, layout.num_localized(ratio))
    mask, searches = select_in_groups(
        objective, ratios.quotas, importance.mask, budget=budget, seed=seed, on_stage=on_stage
    )
    record = {
        "method": "bosch",
        "budget_per_layer": budget,
        "stage_1": {
            "scores": _by_layer(importance.scores),
            "mask": importance.mask.key(),
            "searches": list(importance.searches),
        },
        "stage_2": {
            "drops": _by_layer(ratios.drops),
            "weights": _by_layer(ratios.weights),
            "quotas": _by_layer(ratios.quotas),
        },
        "stage_3": {"searches": searches},
    }
    return Selection(mask, record, ratios.drops)


def _by_layer(values: dict[int, float] | dict[int, int]) -> dict[str, float]:
    return {str(layer): values[layer] for layer in sorted(values)}

"""The three stages of BOSCH (paper 2.2): layer importance, adaptive ratios, grouped selection."""

from bosch.heads import quota
from bosch.selectors.bosch.groups import select_in_groups
from bosch.selectors.bosch.importance import layer_importance
from bosch.selectors.bosch.ratios import adaptive_ratios
from bosch.selectors.contract import Problem, Selection, StageListener


def bosch(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """The paper's three stages; arguments as in `Selector`."""
    objective, layout = problem.objective, problem.layout
    units = {layer: layout.units_per_layer[layer] for layer in layout.eligible_layers}
    even = {layer: quota(ratio, count) for layer, count in units.items()}
    importance = layer_importance(objective, even, budget=budget, seed=seed, on_stage=on_stage)
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

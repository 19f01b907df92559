"""The three stages of BOSCH (paper 2.2): layer importance, adaptive ratios, grouped selection."""

import dataclasses
from typing import Any

from bosch.common.lookup import lookup
from bosch.common.options import check_positive
from bosch.heads import quota
from bosch.optimizers import OPTIMIZERS
from bosch.selectors.method import Method, Problem, Selection, StageListener
from bosch.selectors.stages.groups import select_in_groups
from bosch.selectors.stages.importance import layer_importance
from bosch.selectors.stages.ratios import adaptive_ratios


@dataclasses.dataclass(frozen=True)
class Bosch(Method):
    """The paper's three stages.

    Args:
        gamma: the relative drop of the score from which on a layer has the full weight (stage 2).
        optimizer: a name in `bosch.optimizers.OPTIMIZERS` for all searches; None: brute force where it fits the budget,
            NOMAD for up to 50 units, else OnePlusOne.
    """

    name = "bosch"
    summary = "BOSCH, the three stages of the paper (2.2): layer importance, adaptive ratios, grouped selection."

    gamma: float = 0.2
    optimizer: str | None = None

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma)
        if self.optimizer is not None:
            lookup("optimizer", self.optimizer, OPTIMIZERS)

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Arguments as in `Method`."""
        options: dict[str, Any] = {"seed": seed, "on_stage": on_stage, "optimizer": self.optimizer}
        objective, layout = problem.objective, problem.layout
        units = {layer: layout.units_per_layer[layer] for layer in layout.eligible_layers}
        even = {layer: quota(ratio, count) for layer, count in units.items()}
        importance = layer_importance(objective, even, budget=budget, **options)
        ratios = adaptive_ratios(importance.scores, units, layout.num_localized(ratio), self.gamma)
        mask, searches = select_in_groups(objective, ratios.quotas, importance.mask, budget=budget, **options)
        record = {
            "method": self.name,
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

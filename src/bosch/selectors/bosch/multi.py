"""The ablation B-multi (paper 3.4): stage 1 on several layers at a time."""

from bosch.selectors.bosch.groups import split_layers
from bosch.selectors.bosch.single import even_quotas
from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.joint import describe, search_units, units_of


def bosch_multi(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Search groups of neighbouring layers, from the top down; arguments as in `Selector`.

    A group has at most 50 units; `ratio` of them slide, in whatever layers of the group, and its search has `budget`
    evaluations for each of its layers.
    """
    layout = problem.layout
    groups = split_layers(layout.eligible_layers, layout.units_per_layer)
    quotas = even_quotas(ratio, [len(units_of(layout, group)) for group in groups])
    on_stage("stage 1 on groups of layers", budget * len(layout.eligible_layers))
    mask, searches = problem.full, []
    for group, ones in reversed(list(zip(groups, quotas, strict=True))):
        mask, outcome = search_units(
            problem.objective,
            mask,
            {units_of(layout, group): ones},
            budget=budget * len(group),
            seed=seed,
            start=mask,
        )
        searches.append({"layers": list(group), "quota": ones, **describe(outcome)})
    return Selection(mask, {"method": "bosch-multi", "budget_per_layer": budget, "searches": searches})

"""The ablations of BOSCH (paper 3.4, B.2): stage 1 alone, stage 1 on groups of layers, and whole layers."""

import dataclasses
from collections.abc import Sequence

from bosch.errors import BoschError
from bosch.heads import HeadMask, quota
from bosch.optimizers import Bits, QuotaSpace
from bosch.selectors.blackbox import describe, search_space, search_units, units_of
from bosch.selectors.method import Method, Problem, Selection, StageListener
from bosch.selectors.stages.groups import split_layers
from bosch.selectors.stages.importance import layer_importance


@dataclasses.dataclass(frozen=True)
class BoschSingle(Method):
    """Search one layer after the other, from the top down.

    The paper's `ceil(ratio * H)` units of every layer are more than `ceil(ratio * N)` in all where H is small; here the
    layers' quotas are rounded so that they sum to that.
    """

    name = "bosch-single"
    summary = "The ablation B-single (paper 3.4): stage 1 alone, and its mask is the result."

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Arguments as in `Method`."""
        layers = problem.layout.eligible_layers
        quotas = even_quotas(ratio, [problem.layout.units_per_layer[layer] for layer in layers])
        found = layer_importance(
            problem.objective,
            dict(zip(layers, quotas, strict=True)),
            budget=budget,
            seed=seed,
            on_stage=on_stage,
        )
        record = {
            "method": self.name,
            "budget_per_layer": budget,
            "scores": {str(layer): found.scores[layer] for layer in layers},
            "searches": list(found.searches),
        }
        return Selection(found.mask, record)


def even_quotas(ratio: float, counts: Sequence[int]) -> list[int]:
    """For each of some sets of units, how many slide: `ratio` of each, rounded so that every beginning of the list has
    `ceil(ratio * its units)` sliding ones; so each quota is within one of its exact share."""
    quotas, units, sliding = [], 0, 0
    for count in counts:
        units += count
        quotas.append(quota(ratio, units) - sliding)
        sliding += quotas[-1]
    return quotas


@dataclasses.dataclass(frozen=True)
class BoschMulti(Method):
    """Search groups of neighbouring layers, from the top down.

    A group has at most 50 units; `ratio` of them slide, in whatever layers of the group, and its search has `budget`
    evaluations for each of its layers.
    """

    name = "bosch-multi"
    summary = "The ablation B-multi (paper 3.4): stage 1 on several layers at a time."

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Arguments as in `Method`."""
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
        return Selection(mask, {"method": self.name, "budget_per_layer": budget, "searches": searches})


@dataclasses.dataclass(frozen=True)
class BoschLayer(Method):
    """Search which layers slide as a whole.

    Units that are left over, fewer than a layer has, slide in the layer that bears it best, tried one by one.

    Raises:
        BoschError: the eligible layers have different numbers of units, so that layers cannot be exchanged.
    """

    name = "bosch-layer"
    summary = "The ablation B-layer (paper 3.4, B.2): whole layers are the variables, all in one search."

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Arguments as in `Method`."""
        layout, layers = problem.layout, problem.layout.eligible_layers
        sizes = {layout.units_per_layer[layer] for layer in layers}
        if len(sizes) != 1:
            raise BoschError(f"bosch-layer needs layers with equal numbers of units, this model has {layout}")
        num_whole, left = divmod(layout.num_localized(ratio), sizes.pop())
        space = QuotaSpace(((len(layers), num_whole),))

        def place(bits: Bits) -> HeadMask:
            return problem.full.localize(
                units_of(layout, (layer for layer, slides in zip(layers, bits, strict=True) if slides))
            )

        on_stage("searching whole layers", budget * len(layers))
        start = space.project((False,) * len(layers))
        mask, outcome = search_space(
            problem.objective, space, place, budget=budget * len(layers), seed=seed, start=start
        )
        if left:
            full = [layer for layer in layers if all(mask.full[layer])]
            mask = max((mask.localize((layer, head) for head in range(left)) for layer in full), key=problem.objective)
        return Selection(mask, {"method": self.name, "budget_per_layer": budget, "search": describe(outcome)})

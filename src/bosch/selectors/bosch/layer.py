"""The ablation B-layer (paper 3.4, B.2): whole layers are the variables, all in one search."""

from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.optimizers import Bits, QuotaSpace
from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.joint import describe, search_space, units_of


def bosch_layer(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Search which layers slide as a whole; arguments as in `Selector`.

    Units that are left over, fewer than a layer has, slide in the layer that bears it best, tried one by one.

    Raises:
        BoschError: the eligible layers have different numbers of units, so that layers cannot be exchanged.
    """
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
    mask, outcome = search_space(problem.objective, space, place, budget=budget * len(layers), seed=seed, start=start)
    if left:
        full = [layer for layer in layers if all(mask.full[layer])]
        mask = max((mask.localize((layer, head) for head in range(left)) for layer in full), key=problem.objective)
    return Selection(mask, {"method": "bosch-layer", "budget_per_layer": budget, "search": describe(outcome)})

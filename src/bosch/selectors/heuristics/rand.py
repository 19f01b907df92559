"""RAND (paper 3.4): full layers at random."""

import random

from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.heuristics.whole_layers import keep_layers


def rand(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Every choice of full layers is equally likely; with one seed, a smaller ratio only adds layers to it."""

    def pattern(num_layers: int, num_full: int) -> list[int]:
        return random.Random(f"layers {seed}").sample(range(num_layers), num_layers)[:num_full]

    return Selection(keep_layers(problem, ratio, pattern), {"method": "rand", "seed": seed})

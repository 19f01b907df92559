"""INTR (paper 3.4): full layers evenly interleaved, as in models that are trained as hybrids."""

from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.heuristics.whole_layers import keep_layers


def intr(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """The layers are cut into as many even periods as there are full layers; the last of each period is full."""
    return Selection(keep_layers(problem, ratio, interleaved), {"method": "intr"})


def interleaved(num_layers: int, num_full: int) -> list[int]:
    """The full layers, from the top down: of 12 layers and 3 full ones 11, 7, 3."""
    return [(index * num_layers) // num_full - 1 for index in range(num_full, 0, -1)]

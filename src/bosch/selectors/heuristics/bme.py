"""BME (paper 3.4): full layers at the beginning, in the middle and at the end."""

from bosch.selectors.contract import Problem, Selection, StageListener
from bosch.selectors.heuristics.whole_layers import keep_layers


def bme(problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
    """Three blocks of full layers, of sizes that differ by at most one."""
    return Selection(keep_layers(problem, ratio, begin_middle_end), {"method": "bme"})


def begin_middle_end(num_layers: int, num_full: int) -> list[int]:
    """The full layers: of 12 layers and 5 full ones 0, 1, 10, 11 and 5. What does not divide by three goes to the
    beginning first, then to the end."""
    begin, end, middle = (num_full + 2) // 3, (num_full + 1) // 3, num_full // 3
    start = begin + (num_layers - num_full) // 2
    return [*range(begin), *range(num_layers - end, num_layers), *range(start, start + middle)]

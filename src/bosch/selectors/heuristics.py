"""Choices that look at no model: KV heads at random, and patterns of whole layers (paper 3.4)."""

import abc
import dataclasses
import random
from collections.abc import Callable, Sequence

from bosch.heads import HeadMask, Unit
from bosch.selectors.method import Method, Problem, Selection, StageListener

Pattern = Callable[[int, int], list[int]]
"""From a number of layers and how many of them are full, which are; the last of them may be split."""


def random_mask(full: HeadMask, ratio: float, seed: int) -> HeadMask:
    """A mask that localizes `ceil(ratio * N)` units, each choice equally likely.

    Args:
        full: the all-full mask, which gives layout, window and sinks.
        ratio: share of sliding units.
        seed: the same seed gives the same mask in any process.
    """
    units = list(full.layout.units())
    return full.localize(random.Random(f"random units {seed}").sample(units, full.layout.num_localized(ratio)))


@dataclasses.dataclass(frozen=True)
class RandomUnits(Method):
    """What a mask is worth that nobody chose."""

    name = "random-heads"
    summary = "KV heads at random: every set of them is equally likely."
    is_random = True

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Every set of units is equally likely; arguments as in `Method`."""
        return Selection(random_mask(problem.full, ratio, seed), {"method": self.name, "seed": seed})


@dataclasses.dataclass(frozen=True)
class LayerPattern(Method):
    """Whole layers, and one split where the budget does not fall between two."""

    @abc.abstractmethod
    def pattern(self, num_layers: int, num_full: int, seed: int) -> list[int]:
        """Which of the eligible layers are full; the last of them may be split."""

    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Keep the pattern full, localize all other layers; arguments as in `Method`."""
        mask = keep_layers(problem, ratio, lambda num_layers, num_full: self.pattern(num_layers, num_full, seed))
        return Selection(mask, {"method": self.name, **({"seed": seed} if self.is_random else {})})


def keep_layers(problem: Problem, ratio: float, pattern: Pattern) -> HeadMask:
    """Keep a pattern of eligible layers full and localize all others, `ceil(ratio * N)` units exactly.

    The fewest layers that hold all units that stay full are kept; of the last of them, only as many units as are
    still needed, the first ones.
    """
    layout, layers = problem.layout, problem.layout.eligible_layers
    num_full = layout.num_units - layout.num_localized(ratio)
    chosen: Sequence[int] = []
    while sum(layout.units_per_layer[layer] for layer in chosen) < num_full:
        chosen = [layers[index] for index in pattern(len(layers), len(chosen) + 1)]
    kept: list[Unit] = [(layer, head) for layer in chosen for head in range(layout.units_per_layer[layer])]
    return problem.full.localize(set(layout.units()) - set(kept[:num_full]))


@dataclasses.dataclass(frozen=True)
class RandomLayers(LayerPattern):
    """RAND (paper 3.4)."""

    name = "random-layers"
    summary = "RAND (paper 3.4): full layers at random."
    is_random = True

    def pattern(self, num_layers: int, num_full: int, seed: int) -> list[int]:
        """Every choice is equally likely; with one seed, a smaller ratio only adds layers to it."""
        return random.Random(f"layers {seed}").sample(range(num_layers), num_layers)[:num_full]


@dataclasses.dataclass(frozen=True)
class BeginMiddleEnd(LayerPattern):
    """BME (paper 3.4): three blocks of full layers, of sizes that differ by at most one."""

    name = "bme"
    summary = "BME (paper 3.4): full layers at the beginning, in the middle and at the end."

    def pattern(self, num_layers: int, num_full: int, seed: int) -> list[int]:
        """Of 12 layers and 5 full ones 0, 1, 10, 11 and 5. What does not divide by three goes to the beginning first,
        then to the end."""
        begin, end, middle = (num_full + 2) // 3, (num_full + 1) // 3, num_full // 3
        start = begin + (num_layers - num_full) // 2
        return [*range(begin), *range(num_layers - end, num_layers), *range(start, start + middle)]


@dataclasses.dataclass(frozen=True)
class Interleaved(LayerPattern):
    """INTR (paper 3.4): the layers are cut into as many even periods as there are full layers; the last of each period
    is full."""

    name = "intr"
    summary = "INTR (paper 3.4): full layers evenly interleaved, as in models that are trained as hybrids."

    def pattern(self, num_layers: int, num_full: int, seed: int) -> list[int]:
        """From the top down: of 12 layers and 3 full ones 11, 7, 3."""
        return [(index * num_layers) // num_full - 1 for index in range(num_full, 0, -1)]

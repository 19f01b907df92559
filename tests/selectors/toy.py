"""A model that is a formula: every unit has a weight, and some pairs hurt more together than apart."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from bosch.attention.interface import STATE
from bosch.heads import HeadLayout, HeadMask, Unit
from bosch.scoring.objective import Cost, Score


class ToyScorer:
    """Scores masks by nll = 0.1 + sum of the sliding units' weights + sum over sliding pairs.

    Args:
        layout: of the pretended model.
        weights: rise of the NLL when the unit slides; units that are not named cost nothing.
        pairs: further rise when both slide.
    """

    def __init__(
        self,
        layout: HeadLayout,
        weights: dict[Unit, float],
        pairs: dict[tuple[Unit, Unit], float] | None = None,
    ) -> None:
        self.layout = layout
        self.weights = weights
        self.pairs = pairs or {}
        self.full = HeadMask.all_full(layout, window=4)
        self.sliding = HeadMask.all_sliding(layout, window=4)
        self.calls: list[HeadMask] = []

    def nll(self, mask: HeadMask) -> float:
        local = mask.localized
        single = sum(weight for unit, weight in self.weights.items() if unit in local)
        return 0.1 + single + sum(cost for (a, b), cost in self.pairs.items() if a in local and b in local)

    def score(self, mask: HeadMask) -> Score:
        self.calls.append(mask)
        nll = self.nll(mask)
        return Score(tuple(nll < threshold for threshold in (0.5, 1.0, 2.0, 4.0)), (nll,) * 4)

    def score_while(self, mask: HeadMask, is_wanted: Callable[[Score], bool]) -> tuple[Score, bool]:
        """One example after the other, as an evaluator does it."""
        score = self.score(mask)
        for seen in range(len(score.nlls)):
            hits = score.hits[:seen] + (True,) * (len(score.hits) - seen)
            optimistic = Score(hits, score.nlls[:seen] + (0.0,) * (len(score.nlls) - seen))
            if not is_wanted(optimistic):
                return optimistic, False
        return score, True

    def cost(self, masks: Iterable[HeadMask]) -> Cost:
        return Cost(len(set(masks)), 0.0, 0.0)

    def rebase(self, mask: HeadMask) -> None:
        pass

    def best(self, num_localized: int) -> float:
        """The lowest NLL of all masks with so many sliding units, by trying them all."""
        choices = itertools.combinations(list(self.layout.units()), num_localized)
        return min(self.nll(self.full.localize(units)) for units in choices)


@contextlib.contextmanager
def left_alone(model: nn.Module) -> Iterator[None]:
    """The block changes nothing of a model, some of whose weights are frozen, nor the random state."""
    for parameter in list(model.parameters())[::3]:
        parameter.requires_grad_(False)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    flags = [parameter.requires_grad for parameter in model.parameters()]
    implementation, random_state = model.config._attn_implementation, torch.get_rng_state()
    with torch.no_grad():
        yield
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(hasattr(module, STATE) for module in model.modules())
    assert model.config._attn_implementation == implementation
    assert torch.equal(torch.get_rng_state(), random_state)


def ignore(name: str, planned: int) -> None:
    """A listener that does not listen."""

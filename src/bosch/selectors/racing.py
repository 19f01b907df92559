"""Which candidate costs least: measured lazily, and only as far as it takes to know.

- *Lazy* (Minoux, 1978). As others slide, what a unit costs rarely falls: its last measurement is a guess of the least
  that it costs now. Only the cheapest guess is measured again, until the cheapest is no guess any more.
- *Racing.* A measurement ends with the example that proves it above the next guess.
"""

import dataclasses
import heapq
import math
from collections.abc import Iterable

from bosch.heads import HeadMask, Unit
from bosch.scoring.objective import Bound, Objective


@dataclasses.dataclass(frozen=True, order=True)
class Candidate:
    """Units that may slide next, and what is known of their cost.

    Args:
        cost: fall of the normalized score, per unit: measured on top of `mask`, or a guess of the least.
        units: of one layer.
        mask: on top of which the cost is exact; None for a guess.
    """

    cost: float
    units: tuple[Unit, ...]
    mask: HeadMask | None = dataclasses.field(default=None, compare=False)

    def taken_apart(self) -> list["Candidate"]:
        """Its units one by one. One of them may bear the whole cost, so each is guessed to be free."""
        return [Candidate(0.0, (unit,)) for unit in self.units]


class Race:
    """Measures candidates and counts the measurements, known or not: a resumed run counts the same.

    Args:
        objective: the score.
        tolerance: fall of it up to which several units slide together.

    Attributes:
        least_costs: of units measured alone, the smallest cost met, whatever slid then.
    """

    def __init__(self, objective: Objective, tolerance: float = 0.0) -> None:
        self.objective = objective
        self.tolerance = tolerance
        self.measurements = 0
        self.least_costs: dict[Unit, float] = {}

    def measure(self, mask: HeadMask, floor: float) -> Bound:
        """A mask's score, as far as it matters whether it reaches the floor."""
        self.measurements += 1
        return self.objective.at_least(mask, floor)

    def cost(self, mask: HeadMask, units: tuple[Unit, ...], useless: float = math.inf) -> Candidate:
        """What units of one layer cost on top of a mask: exact below a cost that is of no use any more, from there on
        perhaps the least that they cost."""
        score = self.objective(mask)
        bound = self.measure(mask.localize(units), score - useless * len(units))
        cost = (score - bound.score) / len(units)
        if len(units) == 1:
            (unit,) = units
            self.least_costs[unit] = min(cost, self.least_costs.get(unit, cost))
        return Candidate(cost, units, mask if bound.is_exact else None)

    def refined(self, candidate: Candidate) -> list[Candidate]:
        """Its units, where it is a layer too dear to slide whole; otherwise itself."""
        size = len(candidate.units)
        return candidate.taken_apart() if size > 1 and candidate.cost * size > self.tolerance else [candidate]

    def guesses(self, units: Iterable[Unit]) -> list[Candidate]:
        """A heap of units one by one, each guessed to cost the least that it ever did."""
        candidates: list[Candidate] = []
        push(candidates, (Candidate(self.least_costs.get(unit, 0.0), (unit,)) for unit in units))
        return candidates

    def cheapest(self, mask: HeadMask, candidates: list[Candidate], below: float = math.inf) -> Candidate | None:
        """The candidate that costs least per unit on top of a mask.

        Args:
            mask: what slides already.
            candidates: a heap; the winner is taken out, and what is learnt of the others stays in it.
            below: a cost that is of no use any more.

        Returns:
            The candidate with its exact cost; None if none costs less than `below`.
        """
        while candidates and candidates[0].cost < below:
            first = heapq.heappop(candidates)
            if first.mask == mask:
                return first
            next_cost = min(below, candidates[0].cost) if candidates else below
            push(candidates, self.refined(self.cost(mask, first.units, next_cost)))
        return None


def push(candidates: list[Candidate], more: Iterable[Candidate]) -> None:
    """Put more candidates on a heap."""
    for candidate in more:
        heapq.heappush(candidates, candidate)

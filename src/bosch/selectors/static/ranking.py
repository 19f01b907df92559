"""From unit scores to a mask, the same for every static method."""

import dataclasses

from bosch.heads import Unit
from bosch.selectors.contract import Problem, Selection, StageListener, UnitScores
from bosch.selectors.static.measuring import Measure, measure


@dataclasses.dataclass(frozen=True)
class Ranking:
    """A selector that localizes the units with the highest scores.

    Args:
        name: as it is listed.
        measure: how the scores are found: by a statistic of the attention, or in any other way.
    """

    name: str
    measure: Measure

    def __call__(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Rank and cut; arguments as in `Selector`. Scores that are known are not measured again."""
        found = problem.measured.get(self.name)
        if found is None:
            ((_, found),) = measure({self.name: self.measure}, problem, on_stage)
        chosen = most_local(found.scores, problem.layout.num_localized(ratio))
        return Selection(problem.full.localize(chosen), {"method": self.name})


def most_local(scores: UnitScores, count: int) -> list[Unit]:
    """The units with the highest scores; of equals, the lower layer and head first."""
    return sorted(scores, key=lambda unit: (-scores[unit], unit))[:count]

"""What a method costs: the masks that it asked to be scored, and whatever else it ran."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cost:
    """Work done, however much of it was known already.

    Args:
        evaluations: different masks scored.
        full_passes: layers run on tokens, as a multiple of one plain pass over the calibration set.
        seconds: wall time of that work when it was done.
    """

    evaluations: int
    full_passes: float
    seconds: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.evaluations + other.evaluations,
            self.full_passes + other.full_passes,
            self.seconds + other.seconds,
        )

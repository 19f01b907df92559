"""What a method of choosing heads is: one object that says everything about itself, and makes masks."""

import abc
import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bosch.common.lookup import lookup
from bosch.common.options import convert
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask, Unit
from bosch.scoring.objective import Cost, Objective

if TYPE_CHECKING:
    from bosch.probing import Subject

PAPER_BUDGET = 100
"""Evaluations per layer: the paper's kappa."""

StageListener = Callable[[str, int], None]
"""Told the name of each stage as it begins, and how many evaluations are planned in it."""

UnitScores = Mapping[Unit, float]
"""A number for every unit; the larger, the more local, and the sooner localized."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Unit scores, and what they cost."""

    scores: UnitScores
    cost: Cost


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a method may ask about a model.

    Args:
        objective: normalized score of any mask; remembers masks that it has seen.
        subject: the full model and its calibration set, for methods that look inside.
        measured: unit scores that are known already, by the name of their method.
        share_of_exchanges: the part that a greedy method may spend of what its budget leaves for improving its mask;
            below 1 where one search has several ratios.
    """

    objective: Objective
    subject: "Subject | None" = None
    measured: Mapping[str, Measured] = dataclasses.field(default_factory=dict)
    share_of_exchanges: float = 1.0

    @property
    def layout(self) -> HeadLayout:
        """The model's units."""
        return self.objective.scorer.layout

    @property
    def full(self) -> HeadMask:
        """The mask to begin with: nothing slides."""
        return self.objective.scorer.full


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a method chose.

    Args:
        mask: localizes exactly `ceil(ratio * N)` units.
        record: every choice on the way, as plain data for `selection.json`.
        sensitivity: for each layer, how much the normalized score fell when it (or a part of it) was localized; empty
            where the method does not measure that.
        path: masks at smaller ratios that were chosen on the way, smallest ratio first.
    """

    mask: HeadMask
    record: dict[str, Any]
    sensitivity: dict[int, float] = dataclasses.field(default_factory=dict)
    path: tuple[HeadMask, ...] = ()


@dataclasses.dataclass(frozen=True)
class Method(abc.ABC):
    """A method that picks which units slide. Its fields are its parameters, each with a default.

    Class attributes:
        name: as a user calls it.
        summary: what it does, in one sentence.
        is_random: whether it looks at nothing and draws; it is then compared over several seeds.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    is_random: ClassVar[bool] = False

    @abc.abstractmethod
    def select(self, problem: Problem, ratio: float, *, budget: int, seed: int, on_stage: StageListener) -> Selection:
        """Select exactly `ceil(ratio * N)` units.

        Args:
            problem: the model, seen through its scores and its attention.
            ratio: target share of sliding units, in [0, 1].
            budget: evaluations per eligible layer (the paper's kappa); methods that score no mask have no use for it.
            seed: the same arguments give the same mask.
            on_stage: hears how far the search has come.
        """

    def default_budget(self, layout: HeadLayout) -> int:
        """Evaluations per eligible layer where none are asked for."""
        return PAPER_BUDGET

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The method with some parameters, given as values or as text.

        Raises:
            BoschError: it has no such parameter, or a value is of another type.
        """
        kinds = {name: kind for name, kind in typing.get_type_hints(cls).items() if name in cls.parameters()}
        if options and not kinds:
            raise BoschError(f"the method {cls.name} has no parameters, got {', '.join(options)}")
        values = {}
        for name, value in options.items():
            kind = lookup(f"parameter of {cls.name}", name, kinds)
            values[name] = convert(name, kind, _from_text(name, kind, value) if isinstance(value, str) else value)
        return cls(**values)

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Its parameters with their defaults."""
        return {field.name: field.default for field in dataclasses.fields(cls)}

    def options(self) -> tuple[str, ...]:
        """The parameters that differ from their defaults, as `name=value`."""
        defaults = self.parameters()
        return tuple(f"{name}={value}" for name, value in vars(self).items() if value != defaults[name])


def _from_text(name: str, kind: Any, text: str) -> Any:
    kinds = [one for one in typing.get_args(kind) or (kind,) if one is not type(None)]
    try:
        return text if str in kinds else kinds[0](text)
    except ValueError:
        raise BoschError(f"the parameter {name} must be of type {kinds[0].__name__}, got {text!r}") from None

"""What a comparison is asked to do."""

import dataclasses

from bosch.errors import BoschError
from bosch.experiment.settings import ExperimentSettings, check_integer, option
from bosch.heads import quota
from bosch.registry import lookup


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareSettings(ExperimentSettings):
    """All that determines a comparison's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range, an unknown method, or nothing to compare.
    """

    ratios: tuple[float, ...] = option("shares of sliding KV groups, comma-separated", (0.25, 0.5, 0.75, 0.875))
    methods: tuple[str, ...] = option("methods, comma-separated; all of `bosch methods` unless told", ("all",))
    seeds: int = option("how many seeds the methods that are pure chance are run with", 3)

    def __post_init__(self) -> None:
        if not self.ratios or not self.methods:
            raise BoschError("at least one ratio and one method are needed")
        for ratio in self.ratios:
            quota(ratio, 1)
        check_integer("seeds", self.seeds, 1)
        super().__post_init__()
        for method in self.chosen_methods:
            lookup("method", method, dict.fromkeys([*_all_methods(), "all"]))

    @property
    def chosen_methods(self) -> tuple[str, ...]:
        """The methods by name, each once."""
        return tuple(_all_methods()) if self.methods == ("all",) else tuple(dict.fromkeys(self.methods))


def _all_methods() -> list[str]:
    from bosch.selectors import SELECTORS  # imports torch, which `bosch compare --help` need not wait for

    return list(SELECTORS)

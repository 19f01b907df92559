"""What one search is asked to do."""

import dataclasses

from bosch.cache_size import CacheBudget
from bosch.errors import BoschError
from bosch.experiment.settings import ExperimentSettings, check_integer, option
from bosch.heads import quota
from bosch.registry import lookup


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(ExperimentSettings):
    """All that determines a search's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the tokenizer to be judged is judged later.
    """

    ratio: float | None = option("share of the KV groups that become sliding, from 0 to 1", None)
    ratios: tuple[float, ...] = option("several ratios of one search, comma-separated", ())
    kv_budget: str | None = option("the smallest ratio whose keys and values fit, for one sequence: 2GiB@32k", None)
    max_drop: float | None = option(
        "the largest ratio that loses at most this of the calibration score: 1 is the original's, 0 all sliding's", None
    )
    wider_windows: tuple[int, ...] = option(
        "windows that whole layers may have instead, comma-separated; paid with more sliding units, not with bytes", ()
    )
    method: str = option(
        "how heads are chosen: progressive, bosch (the paper's), or any of `bosch methods`", "progressive"
    )

    def __post_init__(self) -> None:
        targets = ("ratio", "ratios", "kv_budget", "max_drop")
        given = [f"--{name.replace('_', '-')}" for name in targets if getattr(self, name) not in (None, ())]
        if len(given) != 1:
            raise BoschError(
                "expected one of --ratio, --ratios, --kv-budget and --max-drop, got "
                + (" and ".join(given) if given else "none")
            )
        for ratio in self.fixed_ratios:
            quota(ratio, 1)
        if self.kv_budget is not None:
            CacheBudget.parse(self.kv_budget)
        if self.max_drop is not None and not 0 <= self.max_drop < 1:
            raise BoschError(f"max_drop must be a number from 0 to below 1, got {self.max_drop!r}")
        super().__post_init__()
        for window in self.wider_windows:
            check_integer("wider_windows", window, self.window + 1)
            if window >= min(self.length):
                raise BoschError(f"a wider window of {window} tokens covers examples of {min(self.length)} tokens "
                                 "whole; expected one smaller than every length")  # fmt: skip
        from bosch.selectors import SELECTORS  # imports torch, which `bosch search --help` need not wait for

        lookup("method", self.method, SELECTORS)

    @property
    def fixed_ratios(self) -> tuple[float, ...]:
        """The ratios that were named, smallest first; none where they follow from a budget or a drop."""
        return tuple(sorted({*self.ratios, *(() if self.ratio is None else (self.ratio,))}))

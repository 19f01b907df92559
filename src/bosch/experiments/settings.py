"""What a search and a comparison are asked to do."""

import dataclasses
import math
from typing import TYPE_CHECKING

from bosch.cache_size import CacheBudget
from bosch.calibration.tasks import DEFAULT_TASKS, TASKS
from bosch.common.lookup import lookup
from bosch.common.options import (
    DEVICE_HELP,
    DTYPE_HELP,
    MODEL,
    TRUST_HELP,
    YARN_HELP,
    check_integer,
    check_yarn,
    option,
)
from bosch.errors import BoschError
from bosch.heads import HeadLayout, quota
from bosch.scoring.objective import OBJECTIVES

if TYPE_CHECKING:
    from bosch.selectors import Method

GROUPS = ("what to search", "for what budget", "on which examples", "how", "where and with what")
"""Groups of the options of `--help`."""
FIRST, BUDGET, EXAMPLES, HOW, WHERE = GROUPS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """The model, the window, and the examples that masks are scored on. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the tokenizer to be judged is judged later.
    """

    model: str = option("a name that `bosch models` lists, a directory, or a hub id", group=FIRST, metavar=MODEL)
    window: int = option("W, tokens that a sliding head sees, its own included", group=FIRST)
    sinks: int = option("first tokens of a sequence that sliding heads see as well", 0, group=BUDGET)
    objective: str = option("what is maximised: nll, accuracy (the paper's), or accuracy+nll", "nll", group=HOW)
    budget: int | None = option(
        "evaluations per layer (the paper's kappa); by default what the method suggests", None, group=HOW
    )
    tasks: tuple[str, ...] = option("needle tasks of both example sets", DEFAULT_TASKS, group=EXAMPLES)
    data: str | None = option(
        "your own examples in place of needles: a JSONL file of prompts and answers, or a text whose later tokens are "
        "to be predicted",
        None,
        group=EXAMPLES,
        metavar="FILE",
    )
    lengths: tuple[int, ...] = option(
        "tokens of the examples, answers included; several are mixed", (512,), group=EXAMPLES
    )
    examples: int = option("calibration examples", 16, group=EXAMPLES)
    heldout: int = option("held-out examples, with other keys and values", 32, group=EXAMPLES)
    haystack: str | None = option(
        "a UTF-8 text file to hide needles in; by default the text that is shipped",
        None,
        group=EXAMPLES,
        metavar="FILE",
    )
    chat: bool = option("ask through the tokenizer's chat template", False, group=EXAMPLES)
    seed: int = option("of the examples and of every method", 0, group=HOW)
    yarn: float | None = option(YARN_HELP, None, group=WHERE)
    dtype: str = option(DTYPE_HELP, "auto", group=WHERE)
    device: str = option(DEVICE_HELP, "auto", group=WHERE)
    memory_gib: float = option("budget for kept activations, in GiB, beside the model", 4.0, group=WHERE)
    ray: str | None = option(
        "spread the evaluations over Ray: local, or the address of a cluster",
        None,
        group=WHERE,
        metavar="local|ADDRESS",
    )
    workers: int | None = option("with --ray: processes that hold the model; by default one a GPU", None, group=WHERE)
    trust_remote_code: bool = option(TRUST_HELP, False, group=WHERE)

    def __post_init__(self) -> None:
        lookup("objective", self.objective, OBJECTIVES)
        for task in self.tasks:
            lookup("task", task, TASKS)
        for name, least in (("window", 1), ("sinks", 0), ("examples", 1), ("heldout", 1), ("seed", 0)):
            check_integer(name, getattr(self, name), least)
        check_yarn(self.yarn)
        if self.budget is not None:
            check_integer("budget", self.budget, 1)
        if self.workers is not None:
            check_integer("workers", self.workers, 1)
            if self.ray is None:
                raise BoschError(
                    f"{self.workers} workers were asked for without --ray; expected --ray local, or an address"
                )
        if not self.lengths or not self.tasks:
            raise BoschError("at least one length and one task are needed")
        for length in self.lengths:
            check_integer("length", length, 1)
            if self.window >= length and self.data is None:
                raise BoschError(f"a window of {self.window} tokens covers examples of {length} tokens whole; "
                                 "expected a window smaller than every length")  # fmt: skip
        if not (math.isfinite(self.memory_gib * 2**30) and self.memory_gib > 0):
            raise BoschError(f"memory_gib must be a positive number of GiB, got {self.memory_gib!r}")

    def evaluations_per_layer(self, method: "Method", layout: HeadLayout) -> int:
        """The budget, or the method's default on a model with such KV heads."""
        return method.default_budget(layout) if self.budget is None else self.budget


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(ExperimentSettings):
    """All that determines a search's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the tokenizer to be judged is judged later.
    """

    ratio: float | None = option("share of the KV heads that become sliding, from 0 to 1", None, group=FIRST)
    ratios: tuple[float, ...] = option("several ratios of one search", (), group=BUDGET)
    kv_budget: str | None = option(
        "the smallest ratio whose keys and values fit, for one sequence: 2GiB@32k",
        None,
        group=BUDGET,
        metavar="BYTES@TOKENS",
    )
    max_drop: float | None = option(
        "the largest ratio that loses at most this of the calibration score: 1 is the original's, 0 all sliding's",
        None,
        group=BUDGET,
    )
    wider_windows: tuple[int, ...] = option(
        "windows that whole layers may have instead; paid with more sliding KV heads, not with bytes", (), group=BUDGET
    )
    method: str = option(
        "how heads are chosen: progressive, bosch (the paper's), or any of `bosch methods`", "progressive", group=HOW
    )
    method_options: tuple[str, ...] = option(
        "parameters of the method, such as steps=12,pool=3; `bosch methods` lists them",
        (),
        group=HOW,
        metavar="NAME=VALUE,...",
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
            if window >= min(self.lengths):
                raise BoschError(f"a wider window of {window} tokens covers examples of {min(self.lengths)} tokens "
                                 "whole; expected one smaller than every length")  # fmt: skip
        self.make_method()

    def make_method(self) -> "Method":
        """The method with its parameters.

        Raises:
            BoschError: there is none of that name, or it has no such parameter.
        """
        from bosch.selectors import make_method  # imports torch, which `bosch search --help` need not wait for

        return make_method(self.method, self.method_options)

    @property
    def fixed_ratios(self) -> tuple[float, ...]:
        """The ratios that were named, smallest first; none where they follow from a budget or a drop."""
        return tuple(sorted({*self.ratios, *(() if self.ratio is None else (self.ratio,))}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareSettings(ExperimentSettings):
    """All that determines a comparison's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range, an unknown method, or nothing to compare.
    """

    ratios: tuple[float, ...] = option("shares of sliding KV heads", (0.25, 0.5, 0.75, 0.875), group=FIRST)
    methods: tuple[str, ...] = option("methods; all of `bosch methods` unless told", ("all",), group=FIRST)
    seeds: int = option("how many seeds the methods that are pure chance are run with", 3, group=HOW)

    def __post_init__(self) -> None:
        if not self.ratios or not self.methods:
            raise BoschError("at least one ratio and one method are needed")
        for ratio in self.ratios:
            quota(ratio, 1)
        check_integer("seeds", self.seeds, 1)
        super().__post_init__()
        for name in self.methods:
            lookup("method", name, dict.fromkeys([*_all_methods(), "all"]))

    @property
    def chosen_methods(self) -> tuple[str, ...]:
        """The methods by name, each once."""
        return tuple(_all_methods()) if self.methods == ("all",) else tuple(dict.fromkeys(self.methods))


def _all_methods() -> list[str]:
    from bosch.selectors import all_methods  # imports torch, which `bosch compare --help` need not wait for

    return list(all_methods())

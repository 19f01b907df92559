"""What every experiment on a model is asked to do. The command line's options are made from these fields."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from bosch.calibration.tasks import TASKS
from bosch.errors import BoschError
from bosch.files import read_text
from bosch.heads import HeadLayout
from bosch.objective import OBJECTIVES
from bosch.registry import lookup

PAPER_BUDGET = 100
"""Evaluations per layer where none are asked for: the paper's kappa."""

GREEDY = {"progressive", "floating"}

GREEDY_BUDGET = 3
"""Evaluations of theirs, for each unit: to measure every unit takes one, to walk to all sliding two more, so that
something is left for exchanges at every ratio."""


def option(help: str, default: Any = dataclasses.MISSING) -> Any:
    """A field of settings, with the help that the command line shows."""
    return dataclasses.field(default=default, metadata={"help": help})


YARN_HELP = "extend the model's positions so many times by YaRN, such as 2.0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """The model, the window, and the examples that masks are scored on. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the tokenizer to be judged is judged later.
    """

    model: str = option("a name that `bosch models` lists, a directory, or a hub id")
    window: int = option("W, tokens that a sliding head sees, its own included")
    sinks: int = option("first tokens of a sequence that sliding heads see as well", 0)
    objective: str = option("what is maximised: nll, accuracy (the paper's), or accuracy+nll", "nll")
    budget: int | None = option(
        "evaluations per layer (the paper's kappa); by default 100, for greedy methods 3 a unit", None
    )
    tasks: tuple[str, ...] = option(
        "needle tasks of both example sets, comma-separated", ("niah_single_1", "niah_single_2", "niah_multikey_1")
    )
    data: str | None = option(
        "instead of needles: a JSONL file of prompts and answers, or a text whose later tokens are to be predicted",
        None,
    )
    length: tuple[int, ...] = option("tokens of the examples, answers included; several are mixed", (512,))
    examples: int = option("calibration examples", 16)
    heldout: int = option("held-out examples, with other keys and values", 32)
    haystack: str | None = option("a UTF-8 text file to hide needles in; by default the text that is shipped", None)
    chat: bool = option("ask through the tokenizer's chat template", False)
    seed: int = option("of the examples and of every method", 0)
    yarn: float | None = option(YARN_HELP, None)
    dtype: str = option("float32, bfloat16, or auto: bfloat16 where the hardware multiplies it fast", "auto")
    device: str = option("a torch device, or auto: the GPU if there is one", "auto")
    memory_gib: float = option("budget for kept activations, in GiB, beside the model", 4.0)
    ray: str | None = option("spread the evaluations over Ray: local, or the address of a cluster", None)
    workers: int | None = option("with --ray: processes that hold the model; by default one a GPU", None)
    trust_remote_code: bool = option("let the checkpoint run Python code of its own", False)

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
        if not self.length or not self.tasks:
            raise BoschError("at least one length and one task are needed")
        for length in self.length:
            check_integer("length", length, 1)
            if self.window >= length:
                raise BoschError(f"a window of {self.window} tokens covers examples of {length} tokens whole; "
                                 "expected a window smaller than every length")  # fmt: skip
        if not (math.isfinite(self.memory_gib * 2**30) and self.memory_gib > 0):
            raise BoschError(f"memory_gib must be a positive number of GiB, got {self.memory_gib!r}")

    def evaluations_per_layer(self, method: str, layout: HeadLayout) -> int:
        """The budget, or the method's default on a model with such units."""
        if self.budget is not None:
            return self.budget
        if method in GREEDY:
            return math.ceil(GREEDY_BUDGET * layout.num_units / len(layout.eligible_layers))
        return PAPER_BUDGET

    def haystack_text(self) -> str | None:
        """Content of the haystack file.

        Raises:
            BoschError: it cannot be read or is not UTF-8.
        """
        return read_haystack(self.haystack)


def read_haystack(path: str | None) -> str | None:
    """Content of a haystack file; None, which is the shipped text, for None.

    Raises:
        BoschError: it cannot be read or is not UTF-8.
    """
    return None if path is None else read_text(Path(path), "the haystack")


def check_integer(name: str, value: Any, least: int) -> None:
    """Refuse what is not an integer of at least so much.

    Raises:
        BoschError: with the name and the value.
    """
    if type(value) is not int or value < least:
        raise BoschError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_yarn(factor: Any) -> None:
    """Refuse what is no factor of YaRN's; None, for none, is fine.

    Raises:
        BoschError: with the value.
    """
    if factor is not None and not (type(factor) in (int, float) and math.isfinite(factor) and factor > 1):
        raise BoschError(f"the factor of YaRN must be a number above 1, got {factor!r}")

"""What a search is asked to do. The command line's options are made from these fields."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from bosch.calibration.tasks import TASKS
from bosch.errors import BoschError
from bosch.heads import quota
from bosch.objective import OBJECTIVES
from bosch.registry import lookup

DEFAULT_BUDGETS = {"progressive": 8, "bosch": 100}
"""Evaluations per layer; the paper's kappa is 100."""


def _option(help: str, default: Any = dataclasses.MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """All that determines a search's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the tokenizer to be judged is judged later.
    """

    model: str = _option("a name that `bosch models` lists, a directory, or a hub id")
    ratio: float = _option("share of the KV groups that become sliding, from 0 to 1")
    window: int = _option("W, tokens that a sliding head sees, its own included")
    sinks: int = _option("first tokens of a sequence that sliding heads see as well", 0)
    method: str = _option("how heads are chosen: progressive, or bosch (the paper's three stages)", "progressive")
    objective: str = _option("what is maximised: nll, accuracy (the paper's), or accuracy+nll", "nll")
    budget: int | None = _option("evaluations per layer (the paper's kappa); by default 8, for bosch 100", None)
    tasks: tuple[str, ...] = _option(
        "needle tasks of both example sets, comma-separated", ("niah_single_1", "niah_single_2", "niah_multikey_1")
    )
    length: tuple[int, ...] = _option("tokens of the examples, answers included; several are mixed", (512,))
    examples: int = _option("calibration examples", 16)
    heldout: int = _option("held-out examples, with other keys and values", 32)
    haystack: str | None = _option("a UTF-8 text file to hide needles in; by default the text that is shipped", None)
    chat: bool = _option("ask through the tokenizer's chat template", False)
    seed: int = _option("of the examples, the optimizers and the random masks", 0)
    dtype: str = _option("float32, bfloat16, or auto: bfloat16 where the hardware multiplies it fast", "auto")
    device: str = _option("a torch device, or auto: the GPU if there is one", "auto")
    memory_gib: float = _option("budget for kept activations, in GiB, beside the model", 4.0)
    trust_remote_code: bool = _option("let the checkpoint run Python code of its own", False)

    def __post_init__(self) -> None:
        quota(self.ratio, 1)
        lookup("method", self.method, DEFAULT_BUDGETS)
        lookup("objective", self.objective, OBJECTIVES)
        for task in self.tasks:
            lookup("task", task, TASKS)
        for name, least in (("window", 1), ("sinks", 0), ("examples", 1), ("heldout", 1), ("seed", 0)):
            _check_integer(name, getattr(self, name), least)
        if self.budget is not None:
            _check_integer("budget", self.budget, 1)
        if not self.length or not self.tasks:
            raise BoschError("at least one length and one task are needed")
        for length in self.length:
            _check_integer("length", length, 1)
            if self.window >= length:
                raise BoschError(f"a window of {self.window} tokens covers examples of {length} tokens whole; "
                                 "expected a window smaller than every length")  # fmt: skip
        if not (math.isfinite(self.memory_gib * 2**30) and self.memory_gib > 0):
            raise BoschError(f"memory_gib must be a positive number of GiB, got {self.memory_gib!r}")

    @property
    def evaluations_per_layer(self) -> int:
        """The budget, or the method's default."""
        return self.budget if self.budget is not None else DEFAULT_BUDGETS[self.method]

    def haystack_text(self) -> str | None:
        """Content of the haystack file.

        Raises:
            BoschError: it cannot be read or is not UTF-8.
        """
        if self.haystack is None:
            return None
        try:
            return Path(self.haystack).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BoschError(f"cannot read the haystack {self.haystack}: {error}") from None


def _check_integer(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise BoschError(f"{name} must be an integer of at least {least}, got {value!r}")

"""How long work is watched: a bar with stage, best score, rate and time left, in a terminal and in a notebook; quiet
when piped."""

import sys
from types import TracebackType
from typing import Any, Protocol, Self

from tqdm.auto import tqdm


class Scored(Protocol):
    """What is shown of a score."""

    @property
    def accuracy(self) -> float:
        """Share of examples answered."""
        ...

    @property
    def nll(self) -> float:
        """Mean answer NLL, in nats a token."""
        ...


def is_watched() -> bool:
    """Whether somebody sees a bar: in a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Progress:
    """One bar a stage. In a search it counts evaluations that were really run; known ones cost no time."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._lowest_nll = float("inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on_stage(self, name: str, planned: int, *, done: int = 0) -> None:
        """Begin a stage of so many steps at most, some of which are done already."""
        self.close()
        if is_watched():
            self._bar = tqdm(total=planned, initial=done, desc=name, unit="eval", file=sys.stderr, dynamic_ncols=True)

    def on_evaluation(self, mask: object, score: Scored | None) -> None:
        """Count one evaluation, given up or not."""
        if score is not None:
            self._lowest_nll = min(self._lowest_nll, score.nll)
            if self._bar is not None:
                text = f"accuracy {score.accuracy:.2f}, nll {score.nll:.3f}, lowest nll {self._lowest_nll:.3f}"
                self._bar.set_postfix_str(text, refresh=False)
        self.advance()

    def describe(self, name: str) -> None:
        """Say what the current stage is at."""
        if self._bar is not None:
            self._bar.set_description(name)

    def advance(self) -> None:
        """Count one step."""
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        """End the current bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

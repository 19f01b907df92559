"""How an experiment is watched: a bar on stderr with stage, best score, evaluations and time left; quiet when piped."""

import sys

from tqdm import tqdm

from bosch.heads import HeadMask
from bosch.objective import Score


class Progress:
    """One bar a stage. It counts evaluations that were really run; known ones cost no time."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._lowest_nll = float("inf")
        self._visible = sys.stderr.isatty()

    def on_stage(self, name: str, planned: int) -> None:
        """Begin a stage of so many evaluations at most."""
        self.close()
        if self._visible:
            self._bar = tqdm(total=planned, desc=name, unit="eval", file=sys.stderr, leave=True, dynamic_ncols=True)

    def on_evaluation(self, mask: HeadMask, score: Score | None) -> None:
        """Count one evaluation, given up or not."""
        if score is not None:
            self._lowest_nll = min(self._lowest_nll, score.nll)
        if self._bar is not None:
            if score is not None:
                text = f"accuracy {score.accuracy:.2f}, nll {score.nll:.3f}, lowest nll {self._lowest_nll:.3f}"
                self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()

    def advance(self) -> None:
        """Count one step that scored no mask."""
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        """End the current bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

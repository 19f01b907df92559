"""What a training says while it goes on: a line of JSON a step, a bar for who watches, and accelerate's trackers."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from tqdm import tqdm

from bosch.common.files import write_text
from bosch.errors import BoschError

ORIGINAL = "original "
"""Before the names of scores of the model with all heads full, which are measured once, at the beginning."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, for curves; a last line that a kill has cut is left out.

    Raises:
        BoschError: it cannot be read, or is not a log.
    """
    try:
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise BoschError(f"{path}: not the log of a training: {error}") from None
    for line in lines:
        if not isinstance(line, dict) or type(line.get("step")) is not int or type(line.get("tokens")) is not int:
            raise BoschError(f"{path}: not the log of a training: expected step and tokens in each line")
    return lines


def start_trackers(accelerator: Accelerator, settings: Mapping[str, Any]) -> None:
    """Let the trackers begin, and know the settings.

    Raises:
        BoschError: they cannot write.
    """
    shown = {name: value if isinstance(value, int | float | str) else str(value) for name, value in settings.items()}
    with _tracking(accelerator):
        accelerator.init_trackers("bosch", config=shown)


@contextlib.contextmanager
def _tracking(accelerator: Accelerator) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BoschError(f"cannot write {accelerator.logging_dir}: {error.strerror or error}") from None


class TrainingLog:
    """The log of one training. Only the main process writes.

    Each line of `log.jsonl` has `step` and `tokens` (trained on so far) and either `loss` (nats a token),
    `learning_rate`, `gradient_norm` (before it is cut) and `tokens_per_second`, or an evaluation's `scores`.

    Args:
        path: `log.jsonl`; lines of steps that are to be taken again are removed.
        accelerator: the processes, with their trackers.
        step: steps taken before; None at the very beginning.
        num_steps: of the whole training.

    Raises:
        BoschError: the file cannot be written, or is not a log.
    """

    def __init__(self, path: Path, accelerator: Accelerator, step: int | None, num_steps: int) -> None:
        self.path = path
        self._accelerator = accelerator
        self._last_time = time.monotonic()
        if accelerator.is_main_process and path.exists():
            kept = [] if step is None else [line for line in read_log(path) if line["step"] <= step]
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._bar = tqdm(
            total=num_steps,
            initial=step or 0,
            desc="training",
            unit="step",
            file=sys.stderr,
            dynamic_ncols=True,
            disable=not (accelerator.is_main_process and sys.stderr.isatty()),
        )

    def add_step(self, step: int, tokens: int, new_tokens: int, values: dict[str, float]) -> None:
        """Log a step that has trained on so many new tokens.

        Raises:
            BoschError: the file, or a tracker's, cannot be written.
        """
        now = time.monotonic()
        speed = round(new_tokens / max(now - self._last_time, 1e-9), 1)
        self._last_time = now
        self._append({"step": step, "tokens": tokens, **values, "tokens_per_second": speed})
        with _tracking(self._accelerator):
            self._accelerator.log({**values, "tokens_per_second": speed}, step=tokens)
        self._bar.set_postfix_str(f"loss {values['loss']:.3f}, {speed:.0f} tok/s", refresh=False)
        self._bar.update()

    def add_scores(self, step: int, tokens: int, scores: dict[str, float]) -> None:
        """Log an evaluation.

        Raises:
            BoschError: the file, or a tracker's, cannot be written.
        """
        self._append({"step": step, "tokens": tokens, "scores": scores})
        with _tracking(self._accelerator):
            self._accelerator.log({f"scores/{name}": score for name, score in scores.items()}, step=tokens)
        self._last_time = time.monotonic()  # the next step's speed is not to count it

    def close(self) -> None:
        """Leave the bar, and let the trackers finish.

        Raises:
            BoschError: they cannot write.
        """
        self._bar.close()
        with _tracking(self._accelerator):
            for tracker in self._accelerator.trackers:
                tracker.finish()

    def _append(self, line: dict[str, Any]) -> None:
        if not self._accelerator.is_main_process:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise BoschError(f"cannot write {self.path}: {error.strerror or error}") from None

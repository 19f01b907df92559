"""GSM8K (Cobbe et al., 2110.14168) from local files, asked as the task `gsm8k` of lm-evaluation-harness asks it.

That is: five worked examples, drawn anew for each problem from the training problems. They are drawn as the harness
draws them, so that the prompts are the same, text by text.
"""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bosch.common.files import read_json_lines, take_fields
from bosch.errors import BoschError

NAME = "gsm8k"
NUM_SHOTS = 5
MAX_NEW_TOKENS = 256
PROMPT_TOKENS = 1024
"""About as long is a prompt."""
STOP = ("Question:", "</s>", "<|im_end|>")
SHOT_SEED = 1234
"""The harness's own, so that the same examples are drawn."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A word problem and its published solution, which ends with `#### ` and the number."""

    question: str
    answer: str


def read_problems(directory: Path, limit: int | None = None) -> tuple[Problem, ...]:
    """The test problems from `directory/gsm8k.jsonl`, in the order of the file.

    Raises:
        BoschError: the file is missing, unreadable or empty, or a line is not as published; the line is named.
    """
    return _read(directory / "gsm8k.jsonl", "test.jsonl", limit)


def read_training_problems(directory: Path) -> tuple[Problem, ...]:
    """The problems that worked examples are drawn from, from `directory/gsm8k_train.jsonl`.

    Raises:
        BoschError: the file is missing, unreadable or empty, or a line is not as published; the line is named.
    """
    return _read(directory / "gsm8k_train.jsonl", "train.jsonl", None)


def make_prompts(problems: Sequence[Problem], training: Sequence[Problem]) -> list[str]:
    """A prompt for each problem, with five worked examples; the same for the first ones however many follow.

    Args:
        problems: what is asked, in the order of the file.
        training: what examples are drawn from, in the order of the file.

    Raises:
        BoschError: there are too few training problems.
    """
    if len(training) < NUM_SHOTS:
        raise BoschError(f"{NUM_SHOTS} worked examples are to be drawn from {len(training)}; expected at least as many")
    rng = random.Random(SHOT_SEED)
    return ["".join(map(_shot, rng.sample(training, NUM_SHOTS))) + _question(problem) for problem in problems]


def _read(path: Path, published: str, limit: int | None) -> tuple[Problem, ...]:
    origin = f"put GSM8K's {published} (repository openai/grade-school-math) there under that name"
    return read_json_lines(path, _problem, origin=origin, limit=limit)


def _problem(data: Any) -> Problem:
    problem = Problem(**take_fields(data, {"question": str, "answer": str}))
    if "#### " not in problem.answer:
        raise BoschError(f"the answer must end with '#### ' and a number, found {problem.answer[-40:]!r}")
    return problem


def _question(problem: Problem) -> str:
    return f"Question: {problem.question}\nAnswer:"


def _shot(problem: Problem) -> str:
    return f"{_question(problem)} {problem.answer}\n\n"

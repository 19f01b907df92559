"""What an evaluation is divided into: a part is measured whole, and then kept."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bosch.deploy.passes import rows_that_fit
from bosch.errors import BoschError
from bosch.evaluation import gsm8k, longbench
from bosch.evaluation.generation import context_length
from bosch.evaluation.needles import measure_needles
from bosch.evaluation.offline import evaluate_gsm8k, evaluate_longbench
from bosch.evaluation.perplexity import measure_perplexity
from bosch.evaluation.results import TaskResult
from bosch.evaluation.settings import GROUPS, PERPLEXITY, EvalSettings
from bosch.experiment.progress import Progress
from bosch.experiment.settings import read_text

SCORE = "score"
"""The score of a task that has one."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is measured: a loaded model.

    Args:
        model: in eval mode.
        tokenizer: the model's.
        progress: what a terminal is shown.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    progress: Progress

    def check_length(self, num_positions: int) -> None:
        """Refuse a length that the model was not made for.

        Raises:
            BoschError: it has fewer positions.
        """
        limit = context_length(self.model)
        if limit is not None and limit < num_positions:
            raise BoschError(
                f"the model has {limit} positions, and {num_positions} are asked for; choose shorter --lengths"
            )


@dataclasses.dataclass(frozen=True)
class Part:
    """One task, at one length where it has lengths.

    Args:
        group: what it is reported with.
        task: its name.
        length: in tokens.
        num_positions: that the model needs; 0 = the task finds out itself.
        num_examples: what the bar counts to; 0 = it has a bar of its own.
        measure: gives the fields of a row that are not named here.
    """

    group: str
    task: str
    length: int | None
    num_positions: int
    num_examples: int
    measure: Callable[[Subject], Mapping[str, Any]]

    @property
    def name(self) -> str:
        """Task and length."""
        return self.task if self.length is None else f"{self.task} @ {self.length}"


def make_parts(settings: EvalSettings) -> tuple[Part, ...]:
    """The parts, in the order of the tasks, and a task's lengths beside each other.

    Raises:
        BoschError: data is missing or not as published, or a library that its score needs is not installed; before
            anything is measured.
    """
    makers = {
        "niah": _needle_parts,
        "longbench": _longbench_parts,
        gsm8k.NAME: _gsm8k_parts,
        PERPLEXITY: _perplexity_parts,
    }
    chosen = settings.chosen_tasks
    groups = {group: [task for task in chosen if task in tasks] for group, tasks in GROUPS.items()}
    return tuple(part for group, tasks in groups.items() if tasks for part in makers[group](tasks, settings))


def _needle_parts(tasks: Iterable[str], settings: EvalSettings) -> Iterator[Part]:
    haystack = None if settings.haystack is None else read_text("haystack", settings.haystack)

    def make(task: str, length: int) -> Part:
        def measure(subject: Subject) -> Mapping[str, Any]:
            return measure_needles(
                subject.model, subject.tokenizer, task, length, settings, haystack, subject.progress.advance
            )

        positions = length + (settings.new_tokens if settings.generate else 0)
        return Part("niah", task, length, positions, settings.examples, measure)

    return (make(task, length) for length in dict.fromkeys(settings.lengths) for task in tasks)


def _longbench_parts(tasks: Iterable[str], settings: EvalSettings) -> Iterator[Part]:
    directory = _data(settings)
    for name in tasks:
        first = longbench.read_documents(directory, name, 1)[0]
        longbench.TASKS[name].score("", first)

    def make(task: str) -> Part:
        def measure(subject: Subject) -> Mapping[str, Any]:
            options: dict[str, Any] = {"chat": settings.chat, "limit": settings.limit}
            return _as_row(evaluate_longbench(subject.model, subject.tokenizer, directory, task, **options))

        return Part("longbench", task, None, 0, 0, measure)

    return map(make, tasks)


def _gsm8k_parts(_: Iterable[str], settings: EvalSettings) -> Iterator[Part]:
    directory = _data(settings)
    gsm8k.make_prompts(gsm8k.read_problems(directory, 1), gsm8k.read_training_problems(directory))
    batch_size = rows_that_fit(gsm8k.PROMPT_TOKENS, settings.batch_tokens)

    def measure(subject: Subject) -> Mapping[str, Any]:
        options: dict[str, Any] = {"limit": settings.limit, "batch_size": batch_size}
        return _as_row(evaluate_gsm8k(subject.model, subject.tokenizer, directory, **options))

    return iter([Part("longbench", gsm8k.NAME, None, 0, 0, measure)])


def _perplexity_parts(_: Iterable[str], settings: EvalSettings) -> Iterator[Part]:
    assert settings.text is not None
    text = read_text("text", settings.text)

    def make(length: int) -> Part:
        def measure(subject: Subject) -> Mapping[str, Any]:
            model, tokenizer, num = subject.model, subject.tokenizer, settings.examples
            advance = subject.progress.advance
            return measure_perplexity(model, tokenizer, text, length, num, settings.batch_tokens, advance)

        return Part(PERPLEXITY, PERPLEXITY, length, length, settings.examples, measure)

    return map(make, dict.fromkeys(settings.lengths))


def _data(settings: EvalSettings) -> Path:
    assert settings.data is not None
    return Path(settings.data)


def _as_row(result: TaskResult) -> dict[str, Any]:
    return {"scores": {SCORE: result.score}, "num_examples": result.num_examples, "is_limited": result.is_limited}

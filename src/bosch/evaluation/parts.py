"""The parts of an evaluation: from what was asked for to what is measured."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bosch.calibration import ExampleSet, own_examples
from bosch.common.files import read_text
from bosch.common.options import read_haystack
from bosch.deploy.forward import rows_that_fit
from bosch.evaluation import gsm8k, longbench
from bosch.evaluation.harness import harness_parts
from bosch.evaluation.needles import NLL, TEACHER_FORCED, measure_needles, score_answers
from bosch.evaluation.offline import evaluate_gsm8k, evaluate_longbench
from bosch.evaluation.part import SCORE, LoadedModel, Part
from bosch.evaluation.perplexity import measure_perplexity
from bosch.evaluation.results import TaskResult
from bosch.evaluation.settings import GROUPS, OWN, PERPLEXITY, EvalSettings


def make_parts(settings: EvalSettings, own: ExampleSet | None = None) -> tuple[Part, ...]:
    """The parts, in the order of the tasks, and a task's lengths beside each other.

    Args:
        settings: of the evaluation.
        own: examples for the task own, in place of a file.

    Raises:
        BoschError: data is missing or not as published, or a library that its score needs is not installed; before
            anything is measured.
    """
    makers: dict[str, Callable[[Sequence[str], EvalSettings], Iterator[Part]]] = {
        PERPLEXITY: _perplexity_parts,
        OWN: functools.partial(_own_parts, own=own),
    }
    if not settings.harness:
        makers |= {"niah": _needle_parts, "longbench": _longbench_parts, gsm8k.NAME: _gsm8k_parts}
    parts: list[Part] = []
    left = list(settings.chosen_tasks)
    for group, make in makers.items():
        if tasks := [task for task in left if task in GROUPS[group]]:
            parts += make(tasks, settings)
            left = [task for task in left if task not in tasks]
    return (*parts, *(harness_parts(left, settings) if left else ()))


def _needle_parts(tasks: Sequence[str], settings: EvalSettings) -> Iterator[Part]:
    haystack = read_haystack(settings.haystack)

    def make(task: str, length: int) -> Part:
        def measure(loaded: LoadedModel) -> Mapping[str, Any]:
            return measure_needles(
                loaded.model, loaded.tokenizer, task, length, settings, haystack, loaded.progress.advance
            )

        positions = length + (settings.new_tokens if settings.generate else 0)
        return Part("niah", task, length, positions, settings.examples, measure)

    return (make(task, length) for length in dict.fromkeys(settings.lengths) for task in tasks)


def _longbench_parts(tasks: Sequence[str], settings: EvalSettings) -> Iterator[Part]:
    directory = _data(settings)
    for name in tasks:
        first = longbench.read_documents(directory, name, 1)[0]
        longbench.TASKS[name].score("", first)

    def make(task: str) -> Part:
        def measure(loaded: LoadedModel) -> Mapping[str, Any]:
            options: dict[str, Any] = {"chat": settings.chat, "limit": settings.limit}
            return _as_row(evaluate_longbench(loaded.model, loaded.tokenizer, directory, task, **options))

        return Part("longbench", task, None, 0, 0, measure)

    return map(make, tasks)


def _gsm8k_parts(_: Sequence[str], settings: EvalSettings) -> Iterator[Part]:
    directory = _data(settings)
    gsm8k.make_prompts(gsm8k.read_problems(directory, 1), gsm8k.read_training_problems(directory))
    batch_size = rows_that_fit(gsm8k.PROMPT_TOKENS, settings.batch_tokens)

    def measure(loaded: LoadedModel) -> Mapping[str, Any]:
        options: dict[str, Any] = {"limit": settings.limit, "batch_size": batch_size}
        return _as_row(evaluate_gsm8k(loaded.model, loaded.tokenizer, directory, **options))

    return iter([Part("longbench", gsm8k.NAME, None, 0, 0, measure)])


def _own_parts(_: Sequence[str], settings: EvalSettings, own: ExampleSet | None) -> Iterator[Part]:
    def measure(loaded: LoadedModel) -> Mapping[str, Any]:
        examples = own
        if examples is None:
            assert settings.data is not None
            options: dict[str, Any] = {"lengths": settings.lengths, "split": "heldout", "chat": settings.chat}
            examples = own_examples(loaded.tokenizer, Path(settings.data), num_examples=settings.examples, **options)
        loaded.check_length(max(len(example.input_ids) for example in examples))
        score = score_answers(loaded.model, list(examples), settings.batch_tokens, loaded.progress.advance)
        return {"scores": {TEACHER_FORCED: score.accuracy, NLL: score.nll}, "num_examples": len(examples)}

    return iter([Part(OWN, OWN, None, 0, len(own) if own else settings.examples, measure)])


def _perplexity_parts(_: Sequence[str], settings: EvalSettings) -> Iterator[Part]:
    assert settings.text is not None
    text = read_text(Path(settings.text), "the text")

    def make(length: int) -> Part:
        def measure(loaded: LoadedModel) -> Mapping[str, Any]:
            model, tokenizer, num = loaded.model, loaded.tokenizer, settings.examples
            advance = loaded.progress.advance
            return measure_perplexity(model, tokenizer, text, length, num, settings.batch_tokens, advance)

        return Part(PERPLEXITY, PERPLEXITY, length, length, settings.examples, measure)

    return map(make, dict.fromkeys(settings.lengths))


def _data(settings: EvalSettings) -> Path:
    assert settings.benchmarks is not None
    return Path(settings.benchmarks)


def _as_row(result: TaskResult) -> dict[str, Any]:
    return {"scores": {SCORE: result.score}, "num_examples": result.num_examples, "is_limited": result.is_limited}

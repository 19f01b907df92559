"""One task of LongBench, or GSM8K, from local files to a score."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bosch.calibration.tokens import as_chat
from bosch.common.lookup import lookup
from bosch.errors import BoschError
from bosch.evaluation import gsm8k, longbench
from bosch.evaluation.generation import generate_answers
from bosch.evaluation.metrics import strict_number
from bosch.evaluation.prompts import cut_middle
from bosch.evaluation.results import TaskResult
from bosch.models.positions import num_positions


def evaluate_longbench(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    task_name: str,
    *,
    max_prompt_tokens: int | None = None,
    chat: bool = False,
    limit: int | None = None,
    batch_size: int = 1,
) -> TaskResult:
    """A model's score on one task of LongBench.

    Args:
        model: any causal language model of transformers, in eval mode.
        tokenizer: the model's.
        directory: holds `<task>.jsonl`.
        task_name: one of `longbench.TASKS`.
        max_prompt_tokens: longer prompts lose their middle; by default what the model's positions hold beside an
            answer.
        chat: ask through the chat template, in the tasks where LongBench does.
        limit: so many of the first documents only; the score is then marked as no result.
        batch_size: prompts at a time.

    Raises:
        BoschError: there is no such task, its data is missing or not as published, a library that its score needs is
            not installed, or the model is too short for the prompts.
    """
    task = lookup("LongBench task", task_name, longbench.TASKS)
    documents = longbench.read_documents(directory, task.name, limit)
    for document in documents:  # a missing library or a wrong reference shows now, not after hours of generation
        task.score("", document)
    render = _renderer(tokenizer, chat and task.uses_chat)
    if max_prompt_tokens is None:
        max_prompt_tokens = _prompt_limit(model, task.max_new_tokens)
    prompts = [cut_middle(tokenizer, task.prompt(document), max_prompt_tokens, render) for document in documents]
    answers = generate_answers(model, tokenizer, prompts, task.max_new_tokens, batch_size=batch_size)
    score = fmean(map(task.score, answers, documents))
    return TaskResult(task.name, score, len(documents), is_limited=limit is not None)


def evaluate_gsm8k(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    *,
    limit: int | None = None,
    batch_size: int = 1,
) -> TaskResult:
    """A model's share of GSM8K's problems solved, five examples given, by the strict score: the form counts too.

    Args:
        model: any causal language model of transformers, in eval mode.
        tokenizer: the model's.
        directory: holds `gsm8k.jsonl` and `gsm8k_train.jsonl`.
        limit: so many of the first problems only; the score is then marked as no result.
        batch_size: prompts at a time.

    Raises:
        BoschError: the data is missing or not as published, or the model is too short for the prompts.
    """
    problems = gsm8k.read_problems(directory, limit)
    prompts = gsm8k.make_prompts(problems, gsm8k.read_training_problems(directory))
    answers = generate_answers(model, tokenizer, prompts, gsm8k.MAX_NEW_TOKENS, gsm8k.STOP, batch_size)
    score = fmean(strict_number(answer, [problem.answer]) for answer, problem in zip(answers, problems, strict=True))
    return TaskResult(gsm8k.NAME, score, len(problems), is_limited=limit is not None)


def _renderer(tokenizer: PreTrainedTokenizerBase, chat: bool) -> Callable[[str], str]:
    return (lambda prompt: as_chat(tokenizer, prompt)) if chat else (lambda prompt: prompt)


def _prompt_limit(model: PreTrainedModel, max_new_tokens: int) -> int:
    length = num_positions(model.config)
    if length is None:
        raise BoschError("the model's config does not say how many positions it has; expected a limit for the prompts")
    return length - max_new_tokens

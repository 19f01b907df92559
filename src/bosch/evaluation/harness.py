"""Tasks of lm-evaluation-harness on a live model: those of the paper by the paper's names, and any other by its own."""

import contextlib
import difflib
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bosch.common.files import read_json, write_json
from bosch.common.lookup import import_extra
from bosch.deploy.forward import rows_that_fit
from bosch.errors import BoschError
from bosch.evaluation import gsm8k
from bosch.evaluation.needles import GENERATED
from bosch.evaluation.part import SCORE, LoadedModel, Part
from bosch.evaluation.settings import GROUPS, EvalSettings
from bosch.models.positions import num_positions

GROUP = "lm-eval"
"""What tasks are reported with that are none of the paper's."""

RULER_LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
"""Tokens; for these alone lm-eval's RULER tasks have a score."""

STRICT = "exact_match,strict-match"
"""GSM8K's score that asks for the form of the answer too."""


def harness_parts(tasks: Sequence[str], settings: EvalSettings) -> Iterator[Part]:
    """The parts of tasks that lm-eval runs; one part for each length of a needle task, so that a limit takes examples
    of all of them.

    Raises:
        BoschError: lm-eval is not installed or does not know a task, or RULER has no score at a length.
    """
    import_extra("lm_eval", "--harness", "eval")
    needles = [task for task in tasks if task in GROUPS["niah"]]
    paper = {task: f"longbench_{task}" for task in GROUPS["longbench"]} | {gsm8k.NAME: gsm8k.NAME}
    others = [task for task in tasks if task not in needles and task not in paper]
    if needles and (wrong := [length for length in settings.lengths if length not in RULER_LENGTHS]):
        known = ", ".join(map(str, RULER_LENGTHS))
        raise BoschError(f"lm-eval scores RULER's tasks at {known} tokens only, got {wrong[0]}; leave out --harness")
    manager = _find_tasks(others, settings.include) if others else None
    for length in dict.fromkeys(settings.lengths):
        yield from (_needle_part(task, length, settings) for task in needles)
    for task in tasks:
        if task in paper:
            yield _paper_part(task, paper[task], settings)
        elif task in others:
            yield _other_part(task, manager, settings)


def _needle_part(task: str, length: int, settings: EvalSettings) -> Part:
    def measure(loaded: LoadedModel) -> Mapping[str, Any]:
        _check_eos(loaded.tokenizer, task)
        with _plain_copy(loaded.tokenizer) as path:
            manager = _manager_of("ruler", {"max_seq_lengths": [length], "tokenizer": str(path)})
            found = _evaluate(loaded, task, manager, settings)
        return {**found, "scores": {GENERATED: found["scores"][f"{length},none"]}}

    return Part("niah", task, length, length, 0, measure)


def _paper_part(task: str, name: str, settings: EvalSettings) -> Part:
    folder, score = ("gsm8k", STRICT) if task == gsm8k.NAME else ("longbench", "score,none")

    def measure(loaded: LoadedModel) -> Mapping[str, Any]:
        _check_eos(loaded.tokenizer, task)
        found = _evaluate(loaded, name, _manager_of(folder, {}), settings)
        return {**found, "scores": {SCORE: found["scores"][score]}}

    return Part("longbench", task, None, 0, 0, measure)


def _other_part(task: str, manager: Any, settings: EvalSettings) -> Part:
    return Part(GROUP, task, None, 0, 0, lambda loaded: _evaluate(loaded, task, manager, settings))


def _check_eos(tokenizer: PreTrainedTokenizerBase, task: str) -> None:
    if tokenizer.eos_token_id is None:
        raise BoschError(f"lm-eval ends the answers of {task} at the EOS, and this tokenizer has none")


def _evaluate(loaded: LoadedModel, name: str, manager: Any, settings: EvalSettings) -> dict[str, Any]:
    """`scores`, `num_examples` and `is_limited`, as in a row. The scores are called as lm-eval calls them, with the
    task's name before them where there are several tasks."""
    lm_eval, huggingface = (
        import_extra("lm_eval", "--harness", "eval"),
        import_extra("lm_eval.models.huggingface", "--harness", "eval"),
    )
    positions = num_positions(loaded.model.config)
    with contextlib.redirect_stdout(sys.stderr), _harness_errors(name):
        batch_size = rows_that_fit(positions or settings.batch_tokens, settings.batch_tokens)
        found = lm_eval.simple_evaluate(
            huggingface.HFLM(
                pretrained=loaded.model, tokenizer=loaded.tokenizer, backend="causal", batch_size=batch_size
            ),
            tasks=[name],
            task_manager=manager,
            limit=settings.limit,
            apply_chat_template=settings.chat,
            random_seed=settings.seed,
            bootstrap_iters=0,
            log_samples=False,
        )
    return {
        "scores": _scores(name, found["results"]),
        "num_examples": sum(count["effective"] for count in found["n-samples"].values()),
        "is_limited": settings.limit is not None,
    }


def _scores(name: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """All numbers that are scores; -1 and NaN stand for what lm-eval has not measured."""
    return {
        score if task == name else f"{task} {score}": float(value)
        for task, scores in results.items()
        for score, value in scores.items()
        if "," in score
        and "_stderr," not in score
        and isinstance(value, int | float)
        and math.isfinite(value)
        and value != -1
    }


def _find_tasks(tasks: Sequence[str], include: str | None) -> Any:
    """A manager that knows these tasks; the user's own files are read first, as reading all of lm-eval's takes long.

    Raises:
        BoschError: the directory is missing, or a task is not known.
    """
    managers = import_extra("lm_eval.tasks", "--harness", "eval")
    if include is not None:
        if not Path(include).is_dir():
            raise BoschError(f"there is no directory {include}; expected one with task files of lm-eval")
        own = managers.TaskManager(include_path=include, include_defaults=False)
        if set(tasks) <= set(own.all_tasks):
            return own
    manager = managers.TaskManager(include_path=include)
    for task in tasks:
        if task not in manager.all_tasks:
            near = difflib.get_close_matches(task, [*GROUPS, *manager.all_tasks], n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`lm-eval ls tasks` lists them"
            raise BoschError(f"lm-eval knows no task {task!r}; {hint}")
    return manager


def _manager_of(folder: str, metadata: Mapping[str, Any]) -> Any:
    """A manager of one folder of lm-eval's tasks."""
    managers = import_extra("lm_eval.tasks", "--harness", "eval")
    path = Path(managers.__file__).parent / folder
    return managers.TaskManager(include_path=path, include_defaults=False, metadata=dict(metadata))


@contextlib.contextmanager
def _plain_copy(tokenizer: PreTrainedTokenizerBase) -> Iterator[Path]:
    """A directory with a tokenizer's data and no code: RULER's tasks load the one that they are told by name, and would
    run any code that lies with it, whether the user trusts it or not."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        tokenizer.save_pretrained(path)
        config = read_json(path / "tokenizer_config.json")
        config.pop("auto_map", None)
        write_json(path / "tokenizer_config.json", config)
        for code in path.rglob("*.py"):
            code.unlink()
        yield path


@contextlib.contextmanager
def _harness_errors(name: str) -> Iterator[None]:
    """Says in one sentence what lm-eval could not fetch or import."""
    try:
        yield
    except BoschError:
        raise
    except (OSError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BoschError(
            f"lm-eval cannot run {name}: {reason}; expected its data to be had from the hub, or local files as "
            "--benchmarks without --harness"
        ) from error

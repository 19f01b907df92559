"""The evaluators of an experiment: in this process, or spread over a Ray cluster."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bosch.calibration import ExampleSet
from bosch.decoder import Decoder
from bosch.distributed import DistributedEvaluator, Workers
from bosch.evaluator import Evaluator
from bosch.experiment.settings import ExperimentSettings
from bosch.models import load_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@contextlib.contextmanager
def evaluators(
    decoder: Decoder, settings: ExperimentSettings, example_sets: Mapping[str, ExampleSet]
) -> Iterator[Callable[..., Evaluator]]:
    """Make evaluators while the block runs.

    Args:
        decoder: the model.
        settings: of the experiment.
        example_sets: by name.

    Yields:
        A function from the name of a set, and where an evaluator keeps and tells what it finds, to that evaluator.

    Raises:
        BoschError: Ray is asked for and not installed.
    """
    options: dict[str, dict[str, Any]] = {
        name: {
            "examples": examples,
            "window": settings.window,
            "sinks": settings.sinks,
            "memory_bytes": int(settings.memory_gib * 2**30),
        }
        for name, examples in example_sets.items()
    }
    if settings.ray is None:
        yield lambda name, **listeners: Evaluator(decoder, **options[name], **listeners)
        return
    same_dtype = dataclasses.replace(settings, dtype=str(decoder.model.dtype).removeprefix("torch."))
    load_one = functools.partial(_load_model, same_dtype)
    with contextlib.closing(Workers(settings.ray, load_one, options, settings.workers)) as workers:
        yield lambda name, **listeners: DistributedEvaluator(
            decoder, name=name, workers=workers, **options[name], **listeners
        )


def load(settings: ExperimentSettings) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """The model and the tokenizer of an experiment."""
    return load_model(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        trust_remote_code=settings.trust_remote_code,
        yarn=settings.yarn,
    )


def _load_model(settings: ExperimentSettings) -> "PreTrainedModel":
    model, _ = load(settings)
    return model

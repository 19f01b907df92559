"""Continual pretraining of a hybrid, from the settings to its last checkpoint (paper 4.4 and B.5)."""

import contextlib
import copy
import dataclasses
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bosch.calibration import ExampleSet, make_examples
from bosch.common.options import read_haystack
from bosch.common.provenance import model_hash
from bosch.decoder import Decoder
from bosch.heads import HeadMask
from bosch.models.packaged import cache_dir
from bosch.training.adapters import add_adapters, merge_adapters
from bosch.training.corpus import Corpus, open_corpus, prepare_corpus
from bosch.training.directory import TrainingDirectory
from bosch.training.heldout import score_examples, summarize
from bosch.training.hybrid import TrainedHybrid, open_hybrid
from bosch.training.log import ORIGINAL
from bosch.training.loss import Loss, distillation_loss, language_modeling_loss
from bosch.training.needles import NeedleSource
from bosch.training.processes import is_mixed
from bosch.training.settings import NEEDLES, PretrainSettings
from bosch.training.sources import DocumentSource, Source
from bosch.training.train import Evaluate, train

HELDOUT_SEED = 0
"""Of the held-out examples: trainings of other seeds are judged by the same ones."""


def pretrain(target: Path, settings: PretrainSettings, output: Path, *, overwrite: bool = False) -> Path:
    """Train a hybrid; the same call on the same directory goes on where it was stopped.

    Every process of `accelerate launch` calls it, with the same arguments.

    Args:
        target: a search's directory, or an exported hybrid.
        settings: everything else that determines the result.
        output: the training's directory, on a file system that all processes see.
        overwrite: replace another training that is there.

    Returns:
        The last checkpoint, an exported hybrid.

    Raises:
        BoschError: anything that the user can mend; the last good checkpoint is then still there.
    """
    sources = _sources(settings)
    is_main = os.environ.get("RANK", "0") == "0"
    # While model and text are loaded, nobody else begins there; then `train` takes the directory itself.
    with TrainingDirectory(output).held() if is_main else contextlib.nullcontext():
        hybrid = open_hybrid(target, settings.trust_remote_code)
        examples = _heldout(settings, hybrid) if settings.eval_every else None
        corpus = prepare_corpus(
            Corpus(sources, settings.num_steps * settings.tokens_per_step), hybrid.tokenizer, cache_dir() / "corpora"
        )
        sequences = open_corpus(
            corpus,
            settings.sequence_length,
            documents_apart=settings.documents_apart,
            answers_only=settings.answers_only,
        )
    subject = {
        "model": model_hash(hybrid.model),
        "mask": hybrid.mask.key(),
        "window": hybrid.mask.window,
        "sinks": hybrid.mask.sinks,
        "corpus": corpus.name,
        "heldout_examples": examples.fingerprint if examples else None,
        "liger": _use_liger(hybrid.model),
    }
    with contextlib.ExitStack() as stack:
        loss: Loss = language_modeling_loss
        if settings.distill:
            loss = distillation_loss(stack.enter_context(_teacher(hybrid)), is_mixed(settings.precision))
        if settings.lora_rank is not None:
            add_adapters(hybrid.model, settings.lora_rank, settings.seed)
        decoder = stack.enter_context(hybrid.attending())

        def save(_: PreTrainedModel, directory: Path, weights: Mapping[str, Tensor]) -> None:
            hybrid.write(directory, merge_adapters(weights), dataclasses.asdict(settings))

        return train(
            hybrid.model,
            sequences,
            settings,
            output,
            subject=subject,
            save=save,
            on_evaluation=_evaluation(decoder, examples) if examples else None,
            loss=loss,
            overwrite=overwrite,
        )


def _sources(settings: PretrainSettings) -> tuple[DocumentSource, ...]:
    weights = settings.weights or (1.0,) * len(settings.texts)
    return tuple(_source(settings, *named) for named in zip(settings.texts, weights, strict=True))


def _source(settings: PretrainSettings, location: str, weight: float) -> DocumentSource:
    if location != NEEDLES:
        return Source(
            location=location, field=settings.field, weight=weight, split=settings.split, subset=settings.subset
        )
    return NeedleSource(
        tasks=settings.tasks,
        lengths=settings.lengths,
        haystack=read_haystack(settings.needle_haystack),
        chat=settings.chat,
        seed=settings.seed,
        weight=weight,
    )


def _heldout(settings: PretrainSettings, hybrid: TrainedHybrid) -> ExampleSet:
    return make_examples(
        hybrid.tokenizer,
        tasks=settings.tasks,
        lengths=settings.lengths,
        num_examples=settings.heldout,
        seed=HELDOUT_SEED,
        split="heldout",
        haystack_text=read_haystack(settings.haystack),
        chat=settings.chat,
    )


def _use_liger(model: PreTrainedModel) -> bool:
    """Take liger-kernel's fused kernels where they are installed and there is a GPU."""
    if not torch.cuda.is_available() or importlib.util.find_spec("liger_kernel") is None:
        return False
    from transformers.integrations.liger import apply_liger_kernel

    apply_liger_kernel(model, None)
    return True


@contextlib.contextmanager
def _teacher(hybrid: TrainedHybrid) -> Iterator[PreTrainedModel]:
    """A copy of the model with all heads full, which runs on the same kernels."""
    teacher = copy.deepcopy(hybrid.model)
    decoder = Decoder(teacher)
    with decoder.hybrid(_all_full(decoder)):
        yield teacher


def _evaluation(decoder: Decoder, examples: ExampleSet) -> Evaluate:
    """Scores of the hybrid; at the beginning those of the model with all heads full as well."""

    def evaluate(tokens: int) -> dict[str, float]:
        model = decoder.model
        scores = summarize(score_examples(model, examples), examples)
        if tokens == 0:
            with decoder.hybrid(_all_full(decoder)):
                original = summarize(score_examples(model, examples), examples)
            scores |= {f"{ORIGINAL}{name}": value for name, value in original.items()}
        return scores

    return evaluate


def _all_full(decoder: Decoder) -> HeadMask:
    return HeadMask.all_full(decoder.layout, window=1)

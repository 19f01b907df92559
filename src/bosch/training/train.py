"""The loop of continual pretraining (paper B.5): AdamW, a warmed-up cosine, steps of a given number of tokens.

What a step does depends on its number, the settings and the weights alone: which sequences it reads, the learning rate,
and the random numbers of dropout. So a stopped training goes on as if it had not been stopped, and however many
processes share a step, it reads the same sequences.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from bosch.common.output import make_directory
from bosch.errors import BoschError
from bosch.training.checkpoint import (
    Save,
    Trained,
    TrainingState,
    clear_remains,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
    save_pretrained,
)
from bosch.training.checks import check_documents_stay_apart, check_sequences
from bosch.training.directory import TrainingDirectory
from bosch.training.log import TrainingLog, start_trackers
from bosch.training.loss import Loss, language_modeling_loss
from bosch.training.packing import PackedSequences, reading_order
from bosch.training.processes import failing_together, join_processes
from bosch.training.schedule import BatchPlan, is_due, learning_rate, plan_batches
from bosch.training.settings import TrainSettings

Evaluate = Callable[[int], Mapping[str, float]]
"""From the tokens trained on so far to scores by name. Called by all processes, the model in evaluation mode; it must
leave the model as it was, and call it through `model(...)` only, as a process may hold a share of the weights."""


def train(
    model: PreTrainedModel,
    sequences: PackedSequences,
    settings: TrainSettings,
    output: Path,
    *,
    subject: Mapping[str, Any],
    save: Save = save_pretrained,
    on_evaluation: Evaluate | None = None,
    loss: Loss = language_modeling_loss,
    overwrite: bool = False,
) -> Path:
    """Train a model in place; the same call on the same directory goes on from its last checkpoint.

    Every process of `accelerate launch` calls it, with the same arguments.

    Args:
        model: any causal language model of transformers, with whatever decides its attention switched on and left on
            until the end. Weights in half precision are made float32 first, as small steps would be lost in them.
        sequences: what it reads.
        settings: how it learns.
        output: the training's directory, on a file system that all processes see.
        subject: what is trained on what, as plain data, such as hashes of model, mask and corpus: a training of
            another subject is not gone on with.
        save: writes a checkpoint's export.
        on_evaluation: gives the scores of the model as it is.
        loss: what is minimised.
        overwrite: replace another training that is there.

    Returns:
        The last checkpoint.

    Raises:
        BoschError: anything that the user can mend, a loss that is no number among them; the last good checkpoint is
            then still there.
    """
    directory = TrainingDirectory(output)
    accelerator = join_processes(settings, directory.trackers)
    plan = plan_batches(settings.tokens_per_step, sequences.length, settings.micro_batch, accelerator.num_processes)
    check_sequences(model, sequences)
    with contextlib.ExitStack() as held:
        with failing_together(accelerator):
            if accelerator.is_main_process:
                facts = {"packed_length": sequences.length, "packed_apart": sequences.documents_apart}
                asked = {**dataclasses.asdict(settings), **subject, **facts, "num_processes": accelerator.num_processes}
                held.enter_context(directory.claimed(asked, overwrite=overwrite)).begin()
                make_directory(directory.checkpoints)
                clear_remains(directory.checkpoints)
        run = _Run(_distribute(accelerator, model, sequences, settings), sequences, settings, plan, directory, loss)
        try:
            return _train(run, save, on_evaluation)
        finally:
            accelerator.unwrap_model(run.trained.model, keep_fp32_wrapper=False)  # mixed precision replaced its forward
            model.activation_checkpointing_disable()
            model.eval()


@dataclasses.dataclass(frozen=True)
class _Run:
    trained: Trained
    sequences: PackedSequences
    settings: TrainSettings
    plan: BatchPlan
    directory: TrainingDirectory
    loss: Loss

    @property
    def accelerator(self) -> Accelerator:
        return self.trained.accelerator


def _distribute(
    accelerator: Accelerator, model: PreTrainedModel, sequences: PackedSequences, settings: TrainSettings
) -> Trained:
    """Get the model ready, give it an optimizer, and spread both over the processes."""
    if model.dtype in (torch.bfloat16, torch.float16):
        model.float()
    if sequences.documents_apart:
        check_documents_stay_apart(model.eval())
    if settings.gradient_checkpointing and not model.supports_gradient_checkpointing:
        raise BoschError(f"{type(model).__name__} has no gradient checkpointing; expected to train it without")
    if settings.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [one for one in trained if one.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [one for one in trained if one.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.learning_rate)
    return Trained(accelerator, *accelerator.prepare(model.train(), optimizer))


def _train(run: _Run, save: Save, on_evaluation: Evaluate | None) -> Path:
    """From the last checkpoint, or from the beginning, to the end."""
    settings, tokens_per_step = run.settings, run.settings.tokens_per_step
    before = list_checkpoints(run.directory.checkpoints)
    state = load_checkpoint(run.trained, before[-1]) if before else TrainingState()
    with failing_together(run.accelerator):
        start_trackers(run.accelerator, dataclasses.asdict(settings))
    log = TrainingLog(run.directory.log, run.accelerator, state.step if before else None, run.settings.num_steps)
    with contextlib.closing(log):
        if not before and on_evaluation:
            _evaluate(run, log, 0, on_evaluation)
        while state.step < run.settings.num_steps:
            values = _take_step(run, state)
            state = TrainingState(state.step + 1, state.sequences_read + run.plan.sequences_per_step)
            tokens, is_last = state.step * tokens_per_step, state.step == run.settings.num_steps
            with failing_together(run.accelerator):
                log.add_step(state.step, tokens, tokens_per_step, values)
            if on_evaluation and (is_last or is_due(settings.eval_every, tokens - tokens_per_step, tokens)):
                _evaluate(run, log, state.step, on_evaluation)
            if is_last or is_due(settings.save_every, tokens - tokens_per_step, tokens):
                keep = settings.keep_last
                save_checkpoint(run.trained, state, run.directory.checkpoints, save=save, keep=keep)
    return list_checkpoints(run.directory.checkpoints)[-1]


def _take_step(run: _Run, state: TrainingState) -> dict[str, float]:
    """One step of the optimizer.

    Returns:
        `loss` in nats a token over all processes, before the step; `learning_rate`; `gradient_norm`.

    Raises:
        BoschError: the loss or its gradient is no finite number; the weights are as they were.
    """
    accelerator, model, settings = run.accelerator, run.trained.model, run.settings
    rate = learning_rate(state.step, run.settings.num_steps, settings.learning_rate, settings.warmup)
    for group in run.trained.optimizer.param_groups:
        group["lr"] = rate
    torch.manual_seed(_seed(settings.seed, state.step, accelerator.process_index))
    loss = _accumulate_gradients(run, state)
    norm = accelerator.clip_grad_norm_(model.parameters(), settings.max_gradient_norm)
    norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        last = list_checkpoints(run.directory.checkpoints)
        raise BoschError(
            f"the loss was {loss} and its gradient's norm {norm} in step {state.step + 1}; expected finite numbers, "
            f"which a lower learning rate may give; the last good checkpoint is {last[-1] if last else 'none yet'}"
        )
    run.trained.optimizer.step()
    run.trained.optimizer.zero_grad()
    return {"loss": loss, "learning_rate": rate, "gradient_norm": norm}


def _accumulate_gradients(run: _Run, state: TrainingState) -> float:
    """Gradients of the mean loss over all targets of a step, wherever they are, and that loss."""
    accelerator, model, sequences = run.accelerator, run.trained.model, run.sequences
    indices = reading_order(len(sequences), run.settings.seed, state.sequences_read, run.plan.sequences_per_step)
    num_targets = sequences.num_targets(indices)
    total = torch.zeros((), dtype=torch.float64, device=accelerator.device)
    micro_batches = run.plan.micro_batches(indices, accelerator.process_index)
    for number, micro_batch in enumerate(micro_batches, start=1):
        batch = {name: tensor.to(accelerator.device) for name, tensor in sequences.batch(micro_batch).items()}
        share = sequences.num_targets(micro_batch) / num_targets
        waits = contextlib.nullcontext() if number == len(micro_batches) else accelerator.no_sync(model)
        with waits:
            loss = run.loss(model, batch) * share
            accelerator.backward(loss * accelerator.num_processes)  # whose mean over the processes is then taken
        total += loss.detach().double()
    return float(accelerator.reduce(total, reduction="sum"))


def _evaluate(run: _Run, log: TrainingLog, step: int, on_evaluation: Evaluate) -> None:
    run.trained.model.eval()
    with torch.no_grad():
        scores = dict(on_evaluation(step * run.settings.tokens_per_step))
    run.trained.model.train()
    with failing_together(run.accelerator):
        log.add_scores(step, step * run.settings.tokens_per_step, scores)


def _seed(seed: int, step: int, process: int) -> int:
    return int(np.random.SeedSequence([seed, step, process]).generate_state(1)[0])

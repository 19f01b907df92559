"""Checkpoints: an export that any tool can load, and beside it, in `training/`, what going on takes.

Going on needs nothing of the export. Weights and AdamW's two moments are kept as they are in memory, in safetensors: by
the main process alone where every process holds all of them, else by each its own share (FSDP2). All processes must see
one file system. Nothing is pickled, and no state of a random generator is kept: order and dropout are functions of the
step.
"""

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from bosch.common.files import read_json, take_fields, write_json
from bosch.errors import BoschError
from bosch.training.processes import failing_together

STATE_SCHEMA = "bosch.training-state/1"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of each parameter."""

Save = Callable[[PreTrainedModel, Path, Mapping[str, Tensor]], None]
"""Writes a model with the given full weights, on the CPU, under the model's own names, into a directory."""


def save_pretrained(model: PreTrainedModel, directory: Path, weights: Mapping[str, Tensor]) -> None:
    """The model's own `save_pretrained`."""
    model.save_pretrained(directory, state_dict=dict(weights))


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """How far a training has come; with its settings, all that its next step depends on beside weights and moments.

    Args:
        step: optimizer steps taken.
        sequences_read: where in the reading order the next step begins.
    """

    step: int = 0
    sequences_read: int = 0


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a checkpoint is taken of and put back into.

    Args:
        accelerator: the processes.
        model: prepared by accelerate.
        optimizer: AdamW, prepared by accelerate.
    """

    accelerator: Accelerator
    model: nn.Module
    optimizer: torch.optim.Optimizer

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Those that are trained, by name."""
        named = self.accelerator.unwrap_model(self.model).named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a share of the parameters."""
        return any(isinstance(parameter, DTensor) for parameter in self.parameters.values())

    @property
    def state_file(self) -> str:
        """Where this process's weights and moments are kept."""
        rank, count = (self.accelerator.process_index, self.accelerator.num_processes) if self.is_sharded else (0, 1)
        return f"training/state-{rank:05d}-of-{count:05d}.safetensors"


def list_checkpoints(directory: Path) -> list[Path]:
    """The complete checkpoints of a training, the oldest first."""
    return sorted(path for path in directory.glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name))


def clear_remains(directory: Path) -> None:
    """Remove what a killed process left half-written or half-removed."""
    for path in directory.glob(".step-*"):
        shutil.rmtree(path)


def save_checkpoint(trained: Trained, state: TrainingState, directory: Path, *, save: Save, keep: int) -> Path:
    """Write a checkpoint whole or not at all, then remove the oldest beyond `keep`; called by all processes.

    Args:
        trained: model and optimizer.
        state: how far it has come.
        directory: of all checkpoints of this training.
        save: writes the export.
        keep: checkpoints that remain, at least 1.

    Raises:
        BoschError: it cannot be written; those that were there are as they were.
    """
    accelerator, is_main = trained.accelerator, trained.accelerator.is_main_process
    path = directory / f"step-{state.step:08d}"
    partial = _hidden(path)
    weights = accelerator.get_state_dict(trained.model)
    try:
        with failing_together(accelerator), _writing(path):
            if is_main:
                (partial / "training").mkdir(parents=True)
        with failing_together(accelerator), _writing(path):
            if is_main or trained.is_sharded:
                save_file(_tensors(trained), partial / trained.state_file)
            if is_main:
                write_json(partial / "training/state.json", {"schema": STATE_SCHEMA, **dataclasses.asdict(state)})
                model = accelerator.unwrap_model(trained.model)
                save(model, partial, {name: weight.detach().cpu() for name, weight in weights.items()})
        with failing_together(accelerator), _writing(path):
            if is_main:
                _flush(partial)
                partial.rename(path)
                for old in list_checkpoints(directory)[:-keep]:
                    shutil.rmtree(old.rename(_hidden(old)))
    finally:
        if is_main:
            shutil.rmtree(partial, ignore_errors=True)
    return path


@torch.no_grad()
def load_checkpoint(trained: Trained, path: Path) -> TrainingState:
    """Put weights and moments back where they were, in every process.

    Args:
        trained: model and optimizer, as they were made for the training that wrote the checkpoint.
        path: a complete checkpoint.

    Raises:
        BoschError: a file is missing, damaged, or of another model.
    """
    try:
        data = read_json(path / "training/state.json")
        if not isinstance(data, dict) or data.pop("schema", None) != STATE_SCHEMA:
            raise BoschError(f"expected the schema {STATE_SCHEMA!r}")
        state = TrainingState(**take_fields(data, {"step": int, "sequences_read": int}))
        tensors = load_file(path / trained.state_file)
        for name, parameter in trained.parameters.items():
            _local(parameter).copy_(tensors.pop(f"weight/{name}"))
            if f"step/{name}" in tensors:
                moments = {"step": tensors.pop(f"step/{name}")}
                for moment in MOMENTS[1:]:
                    moments[moment] = torch.zeros_like(parameter)
                    _local(moments[moment]).copy_(tensors.pop(f"{moment}/{name}"))
                trained.optimizer.state[parameter] = moments
        if tensors:
            raise BoschError(f"it has {next(iter(tensors))}, which this model has not")
    except KeyError as error:
        raise BoschError(f"{path} is no checkpoint of this training: it lacks {error}") from None
    except (BoschError, OSError, RuntimeError, TypeError, SafetensorError) as error:
        raise BoschError(f"{path} is no checkpoint of this training: {str(error).splitlines()[0]}") from None
    return state


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _tensors(trained: Trained) -> dict[str, Tensor]:
    """What this process holds of weights and moments."""
    tensors = {}
    for name, parameter in trained.parameters.items():
        tensors[f"weight/{name}"] = parameter.detach()
        for moment in MOMENTS:
            if moment in trained.optimizer.state[parameter]:
                tensors[f"{moment}/{name}"] = trained.optimizer.state[parameter][moment]
    return {name: _local(tensor).cpu().contiguous() for name, tensor in tensors.items()}


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (BoschError, OSError, SafetensorError) as error:  # safetensors wraps a full disk in its own error
        before = list_checkpoints(path.parent)
        last = f"the last one is {before[-1]}" if before else "there is none before it"
        raise BoschError(f"cannot write the checkpoint {path}: {error}; {last}") from error


def _flush(directory: Path) -> None:
    """Make the disk hold what was written, so that a checkpoint that has its name is whole even after a power cut."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())

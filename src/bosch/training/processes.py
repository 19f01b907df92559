"""The processes of a training, through accelerate: which ways of spreading a model are taken, and how all of them stop
when one must."""

import contextlib
import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import DistributedType, DynamoBackend, InitProcessGroupKwargs

from bosch.common.lookup import lookup
from bosch.errors import BoschError
from bosch.models.loading import _cpu_has_fast_bfloat16
from bosch.training.settings import TrainSettings

SUPPORTED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.FSDP)


def join_processes(settings: TrainSettings, trackers_directory: Path) -> Accelerator:
    """Join the processes that `accelerate launch` has started; without it, be the only one.

    Raises:
        BoschError: a tracker is unknown or not installed, or the launch asks for what is refused by
            `check_distribution`.
    """
    for name in settings.trackers:
        lookup("tracker", name, LOGGER_TYPE_TO_CLASS)
        if name not in map(str, get_available_trackers()):
            raise BoschError(f"the tracker {name} is not installed; expected the package of that name")
    accelerator = Accelerator(
        mixed_precision="bf16" if is_mixed(settings.precision) else "no",
        log_with=list(settings.trackers) or None,
        project_dir=trackers_directory,
        # While the main process writes a large export, the others wait; torch would give up after minutes.
        kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(hours=6))],
    )
    check_distribution(accelerator)
    return accelerator


def check_distribution(accelerator: Accelerator) -> None:
    """Take one process, DDP and FSDP2 only. Context parallelism, for one, puts the plain causal mask in place of every
    layer's own.

    Raises:
        BoschError: with what was asked for.
    """
    kind, parallelism = accelerator.distributed_type, accelerator.parallelism_config
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != accelerator.num_processes:  # each would train by itself, into the same directory
        raise BoschError(
            f"the launch has started {started} processes, but accelerate sees {accelerator.num_processes}; expected a "
            "GPU for each, or ACCELERATE_USE_CPU=true in the environment"
        )
    refused = {
        kind.value: kind not in SUPPORTED,
        "FSDP without GPUs": os.environ.get("ACCELERATE_USE_FSDP") == "true" and kind != DistributedType.FSDP,
        "FSDP version 1": kind == DistributedType.FSDP and not accelerator.is_fsdp2,
        "torch.compile": accelerator.state.dynamo_plugin.backend != DynamoBackend.NO,
        **{
            f"{name} of {size}": (size or 1) > 1
            for name in ("tp_size", "cp_size", "sp_size")
            if (size := getattr(parallelism, name, 1))
        },
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise BoschError(f"the launch asks for {name}, which is not supported; expected one process, DDP or FSDP2")


def is_mixed(precision: str) -> bool:
    """Whether products are bfloat16 while weights are float32."""
    if precision == "auto":
        return torch.cuda.is_available() or _cpu_has_fast_bfloat16()
    return precision == "bfloat16"


@contextlib.contextmanager
def failing_together(accelerator: Accelerator) -> Iterator[None]:
    """Let an error of one process in the block be an error of all, at its end; one that went on alone would wait for
    the others for ever. Inside, no process may wait for another.

    Raises:
        BoschError: the process's own, or on the others that another process has failed.
    """
    error = None
    try:
        yield
    except BoschError as found:
        error = found
    num_failed = accelerator.reduce(torch.tensor(int(error is not None), device=accelerator.device), reduction="sum")
    if error is not None:
        raise error
    if num_failed:
        raise BoschError("another process of this training has failed; it says why")

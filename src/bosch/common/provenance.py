"""Where a result came from: versions, machine, time, and which weights."""

import datetime
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.version import __version__

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


HASHED_VALUES_PER_TENSOR = 2**20


def provenance() -> dict[str, Any]:
    """What a result file must say to be read years later, as plain JSON data; `time` is in UTC."""
    import torch

    return {
        "bosch": __version__,
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "platform": platform.platform(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "num_threads": torch.get_num_threads(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _git_commit() -> str | None:
    """The commit this code was checked out from, "-dirty" when it was changed since; None for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def model_hash(model: "PreTrainedModel") -> str:
    """SHA-256 over a model's configuration and its parameters' names, shapes, dtypes and values.

    The same in every process, on every device, and wherever the checkpoint lies. Of a parameter of more than 2^20
    values only every n-th is read, n the smallest that leaves at most 2^20: a large model is told from another in
    seconds, but an edit of single weights of a large matrix can escape.
    """
    digest = hashlib.sha256()
    _add(digest, json.dumps(_config_data(model), sort_keys=True, default=str).encode())
    for name, parameter in sorted(model.named_parameters()):
        _add(digest, f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        _add(digest, _sample(parameter))
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "big"))  # so that no two lists of parts read the same
    digest.update(part)


def _config_data(model: "PreTrainedModel") -> dict[str, Any]:
    elsewhere = ("_name_or_path", "transformers_version")  # say where and by what it was saved, not what it is
    return {key: value for key, value in model.config.to_dict().items() if key not in elsewhere}


def _sample(parameter: "torch.Tensor") -> bytes:
    import torch

    stride = -(-parameter.numel() // HASHED_VALUES_PER_TENSOR)
    values = parameter.detach().flatten()[:: max(stride, 1)]
    return values.contiguous().cpu().view(torch.uint8).numpy().tobytes()

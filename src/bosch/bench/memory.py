"""Peak memory of this process: what was allocated on the GPU, or else what was resident."""

import contextlib
import resource
import sys
from pathlib import Path

import torch

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> None:
    """Let the peak begin anew. A resident peak can be so on Linux only; elsewhere it is that of the whole process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            CLEAR_REFS.write_text("5")  # proc(5): resets the peak resident set size


def peak_bytes(device: torch.device) -> int:
    """Bytes at most since the peak was reset, weights included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not getrusage, whose peak a process inherits from the one that started it.
    for line in STATUS.read_text().splitlines() if STATUS.exists() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

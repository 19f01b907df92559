"""One model at one context length: how fast it takes the prompt, how fast it decodes, and what that occupies."""

import contextlib
import dataclasses
import functools
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from bosch.bench.settings import WARM_UP_STEPS
from bosch.deploy.forward import forward, new_cache
from bosch.deploy.modeling_bosch import BoschCache

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


T = TypeVar("T")

PREFILL_SECONDS, MAX_PREFILLS = 1.0, 5
"""A prefill is repeated, at most so often, until all together took so long."""
WARM_UP_TOKENS = 64


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What was measured at one context length, batch size 1.

    Args:
        context: T, tokens in the cache before decoding.
        prefill_tokens_per_s: median over prefills.
        decode_tokens_per_s: of the median step.
        peak_memory_bytes: at most while this context was run, weights included.
        cache_bytes: of the cache's tensors after the prefill, the room for the next tokens included.
    """

    context: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    peak_memory_bytes: int
    cache_bytes: int


def measure(
    model: PreTrainedModel, contexts: Iterable[int], *, chunk: int, new_tokens: int, seed: int
) -> Iterator[Measurement]:
    """Measure a model at one context length after the other.

    Args:
        model: the original, or a hybrid, in eval mode.
        contexts: ascending, so that what an allocator keeps of a shorter one does not count in a longer one's peak.
        chunk: tokens that enter the model at a time, at most.
        new_tokens: steps to be timed.
        seed: of the token ids.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.get_text_config(decoder=True).vocab_size

    def draw(count: int) -> Tensor:
        return torch.randint(vocabulary, (1, count), generator=generator).to(model.device)

    # Two chunks, the second of which meets a cache: both kinds of call load their kernels here.
    _prefill(model, draw(2 * WARM_UP_TOKENS), WARM_UP_TOKENS)
    for context in contexts:
        yield _measure(model, draw(context), draw(WARM_UP_STEPS + new_tokens), chunk)


def _measure(model: PreTrainedModel, prompt: Tensor, continuation: Tensor, chunk: int) -> Measurement:
    reset_peak(model.device)
    cache, seconds = _timed_prefills(model, prompt, chunk)
    cache_bytes = count_bytes(cache)
    tokens = continuation.split(1, dim=1)
    steps = [_time(model.device, functools.partial(forward, model, token, cache))[1] for token in tokens]
    context = prompt.shape[1]
    return Measurement(
        context,
        prefill_tokens_per_s=context / seconds,
        decode_tokens_per_s=1 / median(steps[WARM_UP_STEPS:]),
        peak_memory_bytes=peak_bytes(model.device),
        cache_bytes=cache_bytes,
    )


def _timed_prefills(model: PreTrainedModel, prompt: Tensor, chunk: int) -> tuple[Cache, float]:
    """The cache that the last prefill filled, and the median of their seconds."""
    times: list[float] = []
    while True:
        cache, seconds = _time(model.device, functools.partial(_prefill, model, prompt, chunk))
        times.append(seconds)
        if len(times) == MAX_PREFILLS or sum(times) >= PREFILL_SECONDS:
            return cache, median(times)
        del cache  # two at once would count in the peak


def _prefill(model: PreTrainedModel, prompt: Tensor, chunk: int) -> Cache:
    cache = new_cache(model)
    for tokens in prompt.split(chunk, dim=1):
        forward(model, tokens, cache)
    return cache


def _time(device: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    _wait(device)
    began = time.perf_counter()
    result = work()
    _wait(device)
    return result, time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def count_bytes(cache: Cache) -> int:
    """Bytes that a cache's tensors keep alive: a view counts as what it is a view of."""
    if isinstance(cache, BoschCache):
        return cache.nbytes
    layers: list[Any] = cache.layers
    storages = [x.untyped_storage() for layer in layers for x in (layer.keys, layer.values)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

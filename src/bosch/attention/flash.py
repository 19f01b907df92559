"""FlashAttention 2 or 3 on CUDA, where it is installed. It serves unpadded causal calls in half precision.

Only its choice, its arguments and its absence are tested without a GPU.
"""

import functools
import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from bosch.attention.call import AttentionCall

MODULES = ("flash_attn_interface", "flash_attn")  # version 3, version 2
MAX_HEAD_DIM = 256


@functools.cache
def flash_function() -> Callable[..., Tensor | tuple[Tensor, ...]] | None:
    """`flash_attn_func` of the newest version that can be imported; None if there is none.

    A version that is installed but broken is warned of once and passed over.
    """
    for name in MODULES:
        if importlib.util.find_spec(name) is None:
            continue
        try:
            return importlib.import_module(name).flash_attn_func
        except Exception as error:  # a build for another torch or CUDA fails in many ways, not only with ImportError
            warnings.warn(f"{name} is installed but cannot be imported, so it is not used: {error}", stacklevel=2)
    return None


def supports(query: Tensor, value: Tensor, call: AttentionCall) -> bool:
    """CUDA, float16 or bfloat16, keys as long as values, a plain causal call, without sinks, and with softcap only
    where the version has it."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    if query.shape[-1] > MAX_HEAD_DIM or query.shape[-1] != value.shape[-1]:
        return False
    if not call.is_plain or (call.window is not None and call.sinks) or call.sink_logits is not None:
        return False
    function = flash_function()
    return function is not None and (call.softcap is None or "softcap" in inspect.signature(function).parameters)


def attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Full or sliding attention by FlashAttention, which aligns the last query with the last key, as we do.

    Args:
        query: (B, G, R, Tq, D) float16 or bfloat16, on CUDA.
        key: (B, G, Tk, D).
        value: (B, G, Tk, D).
        call: what `supports` accepts.

    Returns:
        (B, G, R, Tq, D).
    """
    function = flash_function()
    assert function is not None
    # Its window counts the keys to the left of the query's own.
    window = (-1, -1) if call.window is None else (call.window - 1, 0)
    output = function(
        query.flatten(1, 2).transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        softmax_scale=call.scaling,
        causal=True,
        window_size=window,
        **({} if call.softcap is None else {"softcap": call.softcap}),
    )
    if isinstance(output, tuple):  # version 3 also returned the log-sum-exp at first
        output = output[0]
    return output.transpose(1, 2).unflatten(1, query.shape[1:3])

"""The reference of every generation: the stock model in eager attention, without a cache, under dense masks.

Nothing of the package's attention or cache is used. Hooks hand each attention module an additive mask in which the rule
of visibility is written out, whatever calls the model: `generate(use_cache=False)` is then the hybrid's generation.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bosch.heads import HeadMask
from reference import native_window


def visible(real: Tensor, window: int | None, sinks: int) -> Tensor:
    """(B, T, T) bool from padding (B, T): keys j <= i, of these the last W and the row's first S real tokens."""
    index = torch.arange(real.shape[1])
    lag = index[:, None] - index
    near = torch.ones_like(lag, dtype=torch.bool) if window is None else lag < window
    is_sink = (real.cumsum(1) <= sinks)[:, None]
    return ((lag >= 0) & real[:, None] & (near | is_sink)) | (lag == 0)


@contextlib.contextmanager
def dense_hybrid(model: PreTrainedModel, mask: HeadMask) -> Iterator[None]:
    """Inside, the stock model computes what the mask says; its `use_cache` must be False."""
    real = torch.zeros(0)

    def note(module, args, kwargs):
        nonlocal real
        given = kwargs.get("attention_mask")
        real = torch.ones_like(kwargs["input_ids"]).bool() if given is None else given.bool()

    def inject(module, args, kwargs):
        layer = module.layer_idx
        row = mask.full[layer] or (True,)
        window = mask.layer_windows[layer] if mask.layer_windows else mask.window
        kinds = {full: visible(real, *((None, 0) if full else (window, mask.sinks))) for full in set(row)}
        allowed = torch.stack([kinds[full] for full in row], dim=1)
        allowed = allowed.repeat_interleave(model.config.num_attention_heads // len(row), dim=1)
        if (native := native_window(model, layer)) is not None:
            allowed = allowed & visible(real, native, 0)[:, None]
        bias = torch.zeros(allowed.shape, dtype=model.dtype).masked_fill(~allowed, torch.finfo(model.dtype).min)
        return args, {**kwargs, "attention_mask": bias}

    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    attentions = [
        m for m in model.modules() if hasattr(m, "layer_idx") and (hasattr(m, "o_proj") or hasattr(m, "dense"))
    ]
    assert len(attentions) == model.config.num_hidden_layers
    hooks = [model.register_forward_pre_hook(note, with_kwargs=True)]
    hooks += [module.register_forward_pre_hook(inject, with_kwargs=True) for module in attentions]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)


@torch.no_grad()
def is_greedy(model: PreTrainedModel, mask: HeadMask, output: Tensor, num_prompt: int, padding: Tensor) -> bool:
    """Whether every generated token (B, T) is the reference's most likely one after those before it.

    One pass tells: by induction, the output is then what the reference would generate itself.
    """
    real = torch.cat([padding, torch.ones(len(output), output.shape[1] - num_prompt, dtype=padding.dtype)], dim=1)
    with dense_hybrid(model, mask):
        logits = model(input_ids=output, attention_mask=real, use_cache=False).logits
    return torch.equal(logits[:, num_prompt - 1 : -1].argmax(-1), output[:, num_prompt:])

"""The independent reference of every forward test: the family's own eager attention under dense masks.

Nothing of the package's attention is used. A hook hands each attention module of the stock model an additive mask
(B, H, T, T) in which the rule of visibility is written out pair by pair.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bosch.heads import HeadMask


def visible(real: Tensor, window: int | None, sinks: int) -> Tensor:
    """(B, T, T) bool from padding (B, T): key j for query i. A query without any key sees itself."""
    batch, length = real.shape
    result = torch.zeros(batch, length, length, dtype=torch.bool)
    for row in range(batch):
        first_real = [j for j in range(length) if real[row, j]][:sinks]
        for i in range(length):
            for j in range(i + 1):
                near = window is None or i - j < window
                result[row, i, j] = bool(real[row, j]) and (near or j in first_real)
            if not result[row, i].any():
                result[row, i, i] = True
    return result


def reference_logits(
    model: PreTrainedModel, input_ids: Tensor, mask: HeadMask, attention_mask: Tensor | None = None
) -> Tensor:
    """Logits (B, T, V) of the hybrid, by the stock model in eager attention with dense masks."""
    real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    windows = mask.layer_windows or (mask.window,) * len(mask.full)
    kinds = {key: visible(real, *key) for key in {(None, 0), *((window, mask.sinks) for window in windows)}}
    hooks = []

    def inject(layer: int, native: int | None):
        def hook(module, args, kwargs):
            row = mask.full[layer] or (True,)
            num_heads = model.config.num_attention_heads
            allowed = torch.stack([kinds[(None, 0) if full else (windows[layer], mask.sinks)] for full in row], dim=1)
            allowed = allowed.repeat_interleave(num_heads // len(row), dim=1)
            if native is not None:
                allowed = allowed & visible(real, native, 0)[:, None]
            bias = torch.zeros(allowed.shape, dtype=model.dtype).masked_fill(~allowed, torch.finfo(model.dtype).min)
            return args, {**kwargs, "attention_mask": bias}

        return hook

    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        for module in model.modules():
            if hasattr(module, "layer_idx") and any(hasattr(module, name) for name in ("o_proj", "dense")):
                native = native_window(model, module.layer_idx)
                hook = inject(module.layer_idx, native)
                hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        assert len(hooks) == model.config.num_hidden_layers
        with torch.no_grad():
            return model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)


def native_window(model: PreTrainedModel, layer: int) -> int | None:
    """The window that the family itself gives a layer."""
    kinds = getattr(model.config, "layer_types", None)
    return model.config.sliding_window if kinds and kinds[layer] == "sliding_attention" else None

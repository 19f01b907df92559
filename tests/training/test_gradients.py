"""Gradients of every parameter of a hybrid, against the stock model under dense masks, written out pair by pair."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bosch.attention import kernels, padding
from bosch.decoder import Decoder
from bosch.heads import HeadMask
from families import make_model

LENGTH, WINDOW = 83, 5
DOCUMENTS = (47, 1, 35)


@pytest.fixture(autouse=True)
def rows_one_by_one_at_test_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "MIN_QUERIES", 32)


@pytest.fixture(autouse=True)
def norms_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The families' own norms go through float32, whose rounding would be all that there is to see."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    def forward(self: nn.Module, hidden: Tensor) -> Tensor:
        return self.weight * hidden * (hidden.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()

    for kind in (LlamaRMSNorm, Qwen3RMSNorm):
        monkeypatch.setattr(kind, "forward", forward)


def batch(layout: str) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """A batch of two rows, which tokens are real (2, T), and the number of each token's document (2, T)."""
    ids = torch.randint(1, 97, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    real, documents = torch.ones(2, LENGTH, dtype=torch.bool), torch.zeros(2, LENGTH, dtype=torch.int64)
    if layout == "packed":
        documents[1] = torch.repeat_interleave(torch.arange(3), torch.tensor(DOCUMENTS))
        positions = torch.stack([torch.arange(LENGTH), torch.cat([torch.arange(size) for size in DOCUMENTS])])
        return {"input_ids": ids, "position_ids": positions}, real, documents
    if layout == "plain":
        return {"input_ids": ids}, real, documents
    real[1, slice(29) if layout == "left" else slice(-29, None)] = False
    return {"input_ids": ids, "attention_mask": real.long()}, real, documents


def visible(real: Tensor, documents: Tensor, window: int | None, sinks: int) -> Tensor:
    """(B, T, T): of its own document a query sees the real keys up to itself, in the window or among the first S."""
    seen = torch.zeros(*real.shape, real.shape[1], dtype=torch.bool)
    for row in range(len(real)):
        for i in range(real.shape[1]):
            keys = [j for j in range(i + 1) if real[row, j] and documents[row, j] == documents[row, i]]
            near = [j for rank, j in enumerate(keys) if window is None or i - j < window or rank < sinks]
            seen[row, i, near if real[row, i] and near else [i]] = True
    return seen


@contextlib.contextmanager
def dense_hybrid(model: PreTrainedModel, mask: HeadMask, real: Tensor, documents: Tensor) -> Iterator[None]:
    full, sliding = visible(real, documents, None, 0), visible(real, documents, mask.window, mask.sinks)
    hooks = []
    for layer, row in zip(model.model.layers, mask.full, strict=True):
        heads = torch.stack([full if unit else sliding for unit in row], dim=1)
        heads = heads.repeat_interleave(model.config.num_attention_heads // len(row), dim=1)

        def inject(module, args, kwargs, heads=heads):
            return args, {**kwargs, "attention_mask": heads}

        hooks.append(layer.self_attn.register_forward_pre_hook(inject, with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def gradients(model: PreTrainedModel, inputs: dict[str, Tensor], real: Tensor) -> dict[str, Tensor]:
    weight = torch.randn(2, LENGTH, 97, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    model.zero_grad()
    (model(**inputs, use_cache=False).logits * weight * real[:, :, None]).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("layout", ["plain", "left", "right", "packed"])
@pytest.mark.parametrize("names", [("banded", "sdpa", "dense"), ("sdpa",), ("dense",)], ids="-".join)
def test_gradients_are_those_of_the_dense_masks(
    names: tuple[str, ...], layout: str, sinks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "KERNELS", tuple(one for one in kernels.KERNELS if one.name in names))
    model = make_model("qwen3", torch.float64).train()
    model.set_attn_implementation("sdpa")
    decoder = Decoder(model)
    mask = HeadMask.all_sliding(decoder.layout, WINDOW, sinks).assign({(0, 0): True, (1, 0): True, (1, 1): True})
    inputs, real, documents = batch(layout)
    with dense_hybrid(model, mask, real, documents):
        expected = gradients(model, inputs, real)
    with decoder.hybrid(mask):
        found = gradients(model, inputs, real)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.abs().max() > 1e-3
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-8, msg=name)


@pytest.mark.parametrize("layout", ["left", "packed"])
def test_gradient_checkpointing_changes_no_gradient(layout: str) -> None:
    """Layers are run again in the backward pass, where they must attend as they did before."""
    model = make_model("llama", torch.float64).train()
    decoder = Decoder(model)
    mask = HeadMask.all_sliding(decoder.layout, WINDOW, 2).assign({(1, 0): True})
    inputs, real, _ = batch(layout)
    model.train()
    with decoder.hybrid(mask):
        expected = gradients(model, inputs, real)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        found = gradients(model, inputs, real)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-8, msg=name)

"""Packed rows: values and gradients against dense float64 attention in which every pair is decided by a plain rule."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from bosch.attention import dense, interface, sdpa
from bosch.attention.interface import attention_forward
from bosch.attention.kernels import AttentionCall, attend
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadMask
from families import FAMILIES, make_model

GROUPS, HEADS, DIM = 3, 2, 7


def numbered(*lengths: int) -> Tensor:
    """(T,) document numbers of documents that are so long."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def tensors(num_rows: int, length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (num_rows, GROUPS, HEADS, length, DIM), (num_rows, GROUPS, length, DIM), (num_rows, GROUPS, length, 5)
    return [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


def reference(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Softmax over the pairs of one document, causal, in the window or among the document's first S."""
    assert call.documents is not None
    num_rows, length = call.documents.shape
    seen = torch.zeros(num_rows, length, length, dtype=torch.bool)
    for row, numbers in enumerate(call.documents.tolist()):
        for i in range(length):
            for j in range(i + 1):
                near = call.window is None or i - j < call.window or j - numbers.index(numbers[j]) < call.sinks
                seen[row, i, j] = numbers[i] == numbers[j] and near
    scores = torch.einsum("bgrid,bgjd->bgrij", query, key) * call.scaling
    if call.softcap is not None:
        scores = call.softcap * (scores / call.softcap).tanh()
    weights = scores.exp() * seen[:, None, None]
    total = weights.sum(-1, keepdim=True)
    if call.sink_logits is not None:
        total = total + call.sink_logits.exp()[None, :, :, None, None]
    return torch.einsum("bgrij,bgjd->bgrid", weights / total, value)


def assert_same_values_and_gradients(call: AttentionCall) -> None:
    assert call.documents is not None
    inputs = tensors(*call.documents.shape)
    expected = reference(*inputs, call)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)
    functions: list[Callable[..., Tensor]] = [attend, dense.attend]
    if sdpa.supports(inputs[0], inputs[2], call):
        functions.append(sdpa.attend)
    for function in functions:
        output = function(*inputs, call)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
        for found, right in zip(torch.autograd.grad((output * weight).sum(), inputs), expected_gradients, strict=True):
            torch.testing.assert_close(found, right, rtol=0, atol=1e-8)


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("window", [None, 1, 4, 64])
@pytest.mark.parametrize(
    "variant", [{}, {"softcap": 1.3}, {"sink_logits": torch.linspace(-1, 2, 6).double().view(3, 2)}]
)
def test_documents_are_as_if_alone(window: int | None, sinks: int, variant: dict) -> None:
    """Some of one token, and rows with other borders."""
    numbers = torch.stack([numbered(5, 7, 1, 13, 1, 2, 8), numbered(23, 3, 1, 1, 9), numbered(37)])
    assert_same_values_and_gradients(AttentionCall(0.3, window, sinks, documents=numbers, **variant))


def test_the_banded_kernel_serves_the_sliding_groups_of_long_documents() -> None:
    """Longer than window, sinks and a block of queries together."""
    numbers = numbered(83, 3, 61)[None]
    for sinks in (0, 2):
        assert_same_values_and_gradients(AttentionCall(0.3, 5, sinks, documents=numbers))


@given(
    st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=6), min_size=1, max_size=2),
    st.none() | st.integers(1, 30),
    st.integers(0, 4),
)
def test_any_documents(lengths: list[list[int]], window: int | None, sinks: int) -> None:
    longest = max(map(sum, lengths))
    rows = [numbered(*row, *([longest - sum(row)] if sum(row) < longest else [])) for row in lengths]
    assert_same_values_and_gradients(AttentionCall(0.3, window, sinks, documents=torch.stack(rows)))


class LargestTensor(TorchDispatchMode):
    """Notes the most elements that any result has, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for item in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(item, Tensor) and item.untyped_storage().nbytes():
                self.numel = max(self.numel, item.untyped_storage().nbytes() // item.element_size())
        return output


@pytest.mark.parametrize("window", [None, 16])
def test_memory_grows_with_the_length_and_not_with_its_square(window: int | None) -> None:
    """The longest document is of one length, so only the number of documents grows."""
    largest = []
    for count in (4, 16):
        numbers = numbered(*[97] * count)[None]
        inputs = [tensor.detach()[:, :1].float() for tensor in tensors(1, 97 * count)]
        query, key, value = inputs[0].flatten(1, 2).requires_grad_(), inputs[1], inputs[2]
        with LargestTensor() as mode:
            output, _ = attention_forward(
                torch.nn.Module(), query, key, value, numbers[:, None, None], sliding_window=window
            )
            output.sum().backward()
        largest.append(mode.numel)
    assert largest[1] <= 4 * largest[0]
    assert largest[1] < (97 * 16) ** 2 / 4


def tokens(length: int, seed: int) -> Tensor:
    return torch.randint(1, 97, (1, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_have_the_logits_that_each_has_alone(family: str, use_cache: bool, with_mask: bool) -> None:
    """transformers keeps documents apart only where it is given neither a mask of ones nor a cache."""
    decoder = Decoder(make_model(family))
    mask = HeadMask.all_sliding(decoder.layout, 3, sinks=2).assign({next(decoder.layout.units()): True})
    parts = [tokens(5, seed=1), tokens(7, seed=2), tokens(13, seed=3)]
    position_ids = torch.cat([torch.arange(part.shape[1]) for part in parts])[None]
    with torch.no_grad(), decoder.hybrid(mask):
        packed = decoder.model(
            input_ids=torch.cat(parts, dim=1),
            position_ids=position_ids,
            attention_mask=torch.ones_like(position_ids) if with_mask else None,
            use_cache=use_cache,
        ).logits
    alone = torch.cat([decoder.forward(part, mask) for part in parts], dim=1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=2e-4)


def test_one_row_of_positions_serves_all_rows() -> None:
    decoder = Decoder(make_model("llama"))
    mask = HeadMask.all_sliding(decoder.layout, 3)
    ids = torch.cat([tokens(12, 1), tokens(12, 2)])
    position_ids = torch.cat([torch.arange(5), torch.arange(7)])[None]
    with torch.no_grad(), decoder.hybrid(mask):
        packed = decoder.model(input_ids=ids, position_ids=position_ids).logits
    torch.testing.assert_close(packed[:, 5:], decoder.forward(ids[:, 5:], mask), rtol=0, atol=2e-4)


def test_positions_in_padding_are_no_documents() -> None:
    """Left-padded rows number their padding 1, 1, ..., 0, 1, 2."""
    decoder = Decoder(make_model("llama"))
    mask = HeadMask.all_sliding(decoder.layout, 3, sinks=2)
    real = torch.arange(12)[None] >= 5
    position_ids = (real.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad(), decoder.hybrid(mask):
        padded = decoder.model(input_ids=tokens(12, 1), attention_mask=real.long(), position_ids=position_ids).logits
    alone = decoder.forward(tokens(12, 1)[:, 5:], mask)
    torch.testing.assert_close(padded[:, 5:], alone, rtol=0, atol=2e-4)


def test_documents_with_a_cache_are_refused() -> None:
    decoder = Decoder(make_model("llama"))
    with (
        decoder.hybrid(HeadMask.all_sliding(decoder.layout, 3)),
        pytest.raises(BoschError, match=r"start again.*with a cache.*expected no cache"),
    ):
        decoder.model(input_ids=tokens(5, 1), position_ids=torch.tensor([[0, 1, 0, 1, 2]]), cache=DynamicCache())


def test_no_square_mask_is_made_for_packed_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "sdpa_mask", None)
    decoder = Decoder(make_model("gemma3"))
    with torch.no_grad(), decoder.hybrid(HeadMask.all_sliding(decoder.layout, 3)):
        decoder.model(input_ids=tokens(5, 1), position_ids=torch.tensor([[0, 1, 0, 1, 2]]), use_cache=False)


@pytest.mark.parametrize("documents_apart", [False, True])
def test_mixed_precision_runs_every_kernel_in_the_narrow_dtype(documents_apart: bool) -> None:
    """The rotation leaves queries wide and values narrow, and the parts of a layer must come out in one dtype."""
    decoder = Decoder(make_model("llama"))
    mask = HeadMask.all_full(decoder.layout, 3, sinks=2).localize([(0, 0), (1, 0), (1, 1)])
    ids = tokens(37, 1)
    position_ids = torch.cat([torch.arange(11), torch.arange(26)])[None] if documents_apart else None
    with torch.no_grad(), decoder.hybrid(mask):
        expected = decoder.model(input_ids=ids, position_ids=position_ids, use_cache=False).logits
        with torch.autocast("cpu", torch.bfloat16):
            found = decoder.model(input_ids=ids, position_ids=position_ids, use_cache=False).logits
    assert found.dtype == torch.bfloat16
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()

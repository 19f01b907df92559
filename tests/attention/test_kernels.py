"""Every kernel against the definition of visibility, written out here in plain loops and float64."""

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bosch.attention import banded, dense, padding, sdpa
from bosch.attention.kernels import KERNELS, AttentionCall, attend
from bosch.attention.visibility import QUERY_BLOCK, blocks

CPU_KERNELS = (banded, sdpa, dense)


@pytest.fixture(autouse=True, scope="module")
def rows_one_by_one_at_test_size() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(padding, "MIN_QUERIES", 32)
        yield


def visible_set(call: AttentionCall, real: list[int], position: int, allowed: list[bool] | None) -> list[int]:
    seen = [key for key in real if (key <= position if allowed is None else allowed[key])]
    if position not in real or not seen:
        return [position]
    if call.window is None:
        return seen
    return [key for rank, key in enumerate(seen) if position - key < call.window or rank < call.sinks]


def visibility(call: AttentionCall, num_rows: int, num_queries: int, num_keys: int) -> Tensor:
    positions = torch.arange(num_keys - num_queries, num_keys).expand(num_rows, -1)
    positions = (positions if call.positions is None else call.positions).tolist()
    allowed = None if call.allowed is None else call.allowed[:, 0].expand(num_rows, -1, -1).tolist()
    mask = torch.zeros(num_rows, num_queries, num_keys, dtype=torch.bool)
    for row in range(num_rows):
        real = list(range(num_keys)) if call.padding is None else call.padding[row].nonzero().flatten().tolist()
        for query, position in enumerate(positions[row]):
            mask[row, query, visible_set(call, real, position, allowed and allowed[row][query])] = True
    return mask


def oracle(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    mask = visibility(call, query.shape[0], query.shape[3], key.shape[2])
    scores = torch.einsum("bgrid,bgjd->bgrij", query, key) * call.scaling
    if call.softcap is not None:
        scores = call.softcap * (scores / call.softcap).tanh()
    weights = scores.exp() * mask[:, None, None]
    total = weights.sum(-1, keepdim=True)
    if call.sink_logits is not None:
        total = total + call.sink_logits.exp()[None, :, :, None, None]
    return torch.einsum("bgrij,bgjd->bgrid", weights / total, value)


def tensors(
    num_queries: int, num_keys: int, *, rows: int = 2, groups: int = 3, heads: int = 2, dim: int = 7, value_dim: int = 7
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(rows, groups, heads, num_queries, dim, generator=generator, dtype=torch.float64)
    key = torch.randn(rows, groups, num_keys, dim, generator=generator, dtype=torch.float64)
    value = torch.randn(rows, groups, num_keys, value_dim, generator=generator, dtype=torch.float64)
    return query, key, value


def padded(num_keys: int, pads: list[int], side: str = "left") -> Tensor:
    index = torch.arange(num_keys)
    counts = torch.tensor(pads)[:, None]
    return index >= counts if side == "left" else index < num_keys - counts


def kernels_for(query: Tensor, value: Tensor, call: AttentionCall) -> list[Callable[..., Tensor]]:
    return [attend, *(kernel.attend for kernel in CPU_KERNELS if kernel.supports(query, value, call))]


def assert_all_match(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> None:
    expected = oracle(query, key, value, call)
    for function in kernels_for(query, value, call):
        torch.testing.assert_close(function(query, key, value, call), expected, atol=1e-12, rtol=1e-12)


WINDOWS = [None, 1, 2, 7, 64]
SINKS = [0, 2, 4]


@pytest.mark.parametrize("sinks", SINKS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("num_queries", "num_keys"), [(37, 37), (3, 23), (1, 5), (71, 97)])
def test_every_kernel_follows_the_definition(num_queries: int, num_keys: int, window: int | None, sinks: int) -> None:
    """Suffix queries among them: a causal flag without an offset would let the last query see the first key alone."""
    assert_all_match(*tensors(num_queries, num_keys, heads=5), AttentionCall(0.3, window, sinks))


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("num_queries", [97, 71, 1])
def test_padding_is_never_seen(num_queries: int, side: str, window: int | None, sinks: int) -> None:
    call = AttentionCall(0.3, window, sinks, padding=padded(97, [0, 15, 29, 97], side))
    assert_all_match(*tensors(num_queries, 97, rows=4, value_dim=11), call)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape(data: st.DataObject) -> None:
    num_keys = data.draw(st.integers(1, 83))
    num_queries = data.draw(st.integers(1, num_keys))
    rows, groups, heads = (data.draw(st.integers(1, 3)) for _ in range(3))
    window = data.draw(st.none() | st.integers(1, 90))
    pads = data.draw(st.lists(st.integers(0, num_keys), min_size=rows, max_size=rows))
    side = data.draw(st.sampled_from([None, "left", "right"]))
    call = AttentionCall(
        scaling=0.3,
        window=window,
        sinks=data.draw(st.integers(0, 9)),
        softcap=data.draw(st.sampled_from([None, 1.7])),
        padding=padded(num_keys, pads, side) if side else None,
    )
    assert_all_match(*tensors(num_queries, num_keys, rows=rows, groups=groups, heads=heads), call)


@pytest.mark.parametrize(
    ("window", "sinks", "expected"),
    [
        (4, 0, [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]),
        (4, 2, [1, 2, 3, 4, 5, 6, 6, 6, 6, 6]),
        (1, 0, [1] * 10),
        (1, 1, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
        (None, 0, list(range(1, 11))),
    ],
)
@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_a_window_of_w_is_w_visible_keys(
    kernel: ModuleType, window: int | None, sinks: int, expected: list[int]
) -> None:
    """Some backends count the query itself and some do not; here it counts, in all of them."""
    seen = visible_keys(kernel, AttentionCall(1.0, window, sinks))
    assert [len(keys) for keys in seen] == expected
    if (window, sinks) == (4, 2):
        assert seen[9] == {0, 1, 6, 7, 8, 9}
    if (window, sinks) == (1, 1):
        assert seen[:4] == [{0}, {0, 1}, {0, 2}, {0, 3}]


def visible_keys(kernel: ModuleType, call: AttentionCall) -> list[set[int]]:
    """Equal scores and one-hot values: the keys seen are the nonzero entries of the output."""
    query, key, value = torch.zeros(1, 1, 1, 10, 7), torch.zeros(1, 1, 10, 7), torch.eye(10)[None, None]
    function = kernel.attend if kernel.supports(query, value, call) else attend
    return [set(row.nonzero().flatten().tolist()) for row in function(query, key, value, call)[0, 0, 0]]


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("num_padding", [15, 63])
def test_padded_rows_equal_unpadded_ones(num_padding: int, sinks: int) -> None:
    """A band that holds nothing but padding leaves a query with no key, which is NaN unless it is given one."""
    num_keys = num_padding + 5
    query, key, value = tensors(num_keys, num_keys)
    call = AttentionCall(0.3, 4, sinks, padding=padded(num_keys, [num_padding, 0]))
    alone = [tensor[:1, ..., num_padding:, :] for tensor in (query, key, value)]
    expected = attend(*alone, AttentionCall(0.3, 4, sinks))
    for function in kernels_for(query, value, call):
        output = function(query, key, value, call)
        assert output.isfinite().all()
        torch.testing.assert_close(output[:1, ..., num_padding:, :], expected)


@pytest.mark.parametrize("num_keys", [23, 97])
def test_sinks_are_each_rows_own_first_real_tokens(num_keys: int) -> None:
    query, key = torch.zeros(3, 1, 1, num_keys, 7), torch.zeros(3, 1, num_keys, 7)
    value = torch.eye(num_keys).expand(3, 1, -1, -1)
    call = AttentionCall(1.0, 3, 2, padding=padded(num_keys, [0, 7, 15]))
    for function in kernels_for(query, value, call):
        output = function(query, key, value, call)
        for row, first in enumerate((0, 7, 15)):
            seen = output[row, 0, 0, -1].nonzero().flatten().tolist()
            assert seen == [first, first + 1, num_keys - 3, num_keys - 2, num_keys - 1]


def test_padding_with_a_hole() -> None:
    hole = torch.ones(2, 97, dtype=torch.bool)
    hole[1, 41:47] = False
    for window in (None, 7):
        assert_all_match(*tensors(97, 97), AttentionCall(0.3, window, 2, padding=hole))


@pytest.mark.parametrize("sinks", SINKS)
@pytest.mark.parametrize("window", [None, 7])
def test_packed_documents_do_not_see_each_other(window: int | None, sinks: int) -> None:
    """Window and sinks start anew in each document: it is as if it stood alone."""
    query, key, value = tensors(12, 12)
    document = torch.tensor([0] * 5 + [1] * 7)
    allowed = ((document[:, None] == document) & torch.ones(12, 12, dtype=torch.bool).tril())[None, None]
    call = AttentionCall(0.3, window, sinks, allowed=allowed)
    assert_all_match(query, key, value, call)
    alone = attend(query[..., 5:, :], key[:, :, 5:], value[:, :, 5:], AttentionCall(0.3, window, sinks))
    torch.testing.assert_close(attend(query, key, value, call)[..., 5:, :], alone)


def test_a_query_that_is_allowed_nothing_sees_itself() -> None:
    query, key, value = tensors(5, 5)
    allowed = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    allowed[1, 0, 3] = False
    call = AttentionCall(0.3, allowed=allowed)
    assert_all_match(query, key, value, call)
    torch.testing.assert_close(attend(query, key, value, call)[1, :, :, 3], value[1, :, None, 3].expand(-1, 2, -1))


@pytest.mark.parametrize(("window", "sinks"), [(None, 0), (7, 0), (7, 2)])
def test_positions_pick_rows_of_the_whole(window: int | None, sinks: int) -> None:
    """Scattered queries, and a static cache whose last keys are still empty."""
    query, key, value = tensors(97, 97)
    whole = attend(query, key, value, AttentionCall(0.3, window, sinks))
    positions = torch.tensor([[3, 41, 42, 80], [0, 1, 2, 70]])
    picked = torch.stack([query[row][..., index, :] for row, index in enumerate(positions)])
    call = AttentionCall(0.3, window, sinks, positions=positions)
    assert_all_match(picked, key, value, call)
    expected = torch.stack([whole[row][..., index, :] for row, index in enumerate(positions)])
    torch.testing.assert_close(attend(picked, key, value, call), expected)


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("pads", [[0, 0], [5, 41]])
@pytest.mark.parametrize(("softcap", "with_sink_logits"), [(1.7, False), (None, True), (1.7, True)])
def test_softcap_and_learned_sinks(
    softcap: float | None, with_sink_logits: bool, pads: list[int], window: int | None
) -> None:
    query, key, value = tensors(71, 97, heads=5)
    logits = torch.linspace(-2, 2, 15, dtype=torch.float64).view(3, 5) if with_sink_logits else None
    call = AttentionCall(0.3, window, 2 if window else 0, softcap=softcap, sink_logits=logits, padding=padded(97, pads))
    is_real = call.padding[:, None, None, 26:, None]
    expected = oracle(query, key, value, call)
    for function in kernels_for(query, value, call):
        output = function(query, key, value, call)
        assert output.isfinite().all()
        torch.testing.assert_close(output * is_real, expected * is_real)


@pytest.mark.parametrize("call", [AttentionCall(0.3), AttentionCall(0.3, 97), AttentionCall(0.3, 95, 2)])
def test_a_window_over_everything_is_full_attention(call: AttentionCall) -> None:
    query, key, value = (tensor.float() for tensor in tensors(97, 97, dim=8, value_dim=8))
    repeated = [tensor.repeat_interleave(2, dim=1) for tensor in (key, value)]
    expected = scaled_dot_product_attention(query.flatten(1, 2), *repeated, is_causal=True, scale=0.3)
    assert torch.equal(attend(query, key, value, call).flatten(1, 2), expected)


@pytest.mark.parametrize(
    "call",
    [
        AttentionCall(0.3),
        AttentionCall(0.3, 7),
        AttentionCall(0.3, 7, 2),
        AttentionCall(0.3, 7, 2, padding=padded(97, [0, 29])),
        AttentionCall(0.3, 7, softcap=1.7),
    ],
)
@pytest.mark.parametrize("num_queries", [97, 71])
def test_gradients(call: AttentionCall, num_queries: int) -> None:
    inputs = [tensor.requires_grad_() for tensor in tensors(num_queries, 97)]
    expected_output = oracle(*inputs, call)
    direction = torch.randn_like(expected_output)
    expected = torch.autograd.grad((expected_output * direction).sum(), inputs)
    for function in kernels_for(inputs[0], inputs[2], call):
        found = torch.autograd.grad((function(*inputs, call) * direction).sum(), inputs)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(("window", "sinks"), [(None, 0), (7, 0), (7, 2)])
def test_low_precision_is_close(dtype: torch.dtype, tolerance: float, window: int | None, sinks: int) -> None:
    query, key, value = (tensor.to(dtype) for tensor in tensors(97, 97))
    call = AttentionCall(0.3, window, sinks)
    expected = oracle(query.double(), key.double(), value.double(), call)
    for function in kernels_for(query, value, call):
        output = function(query, key, value, call)
        assert output.dtype == dtype
        torch.testing.assert_close(output.double(), expected, atol=tolerance, rtol=tolerance)


def test_inputs_as_transformers_gives_them() -> None:
    """Heads and tokens swapped in memory, so that batch and groups cannot be merged without a copy."""
    query, key, value = tensors(97, 97)
    swapped = [tensor.transpose(-3, -2).contiguous().transpose(-3, -2) for tensor in (query, key, value)]
    for call in (AttentionCall(0.3), AttentionCall(0.3, 7), AttentionCall(0.3, 7, 2)):
        for function in kernels_for(query, value, call):
            torch.testing.assert_close(function(*swapped, call), function(query, key, value, call))


def test_masks_of_a_window_grow_with_the_window_alone() -> None:
    query, key, _ = tensors(2048, 2048, rows=1, groups=1, heads=1, dim=1)
    masks = [mask for _, _, mask in blocks(AttentionCall(1.0, window=64), query, key)]
    assert sum(mask.numel() for mask in masks) <= 2048 * (QUERY_BLOCK + 64)


def test_the_fastest_kernel_that_can_is_chosen() -> None:
    query, _, value = tensors(5, 5)
    calls = (AttentionCall(0.3, 2), AttentionCall(0.3), AttentionCall(0.3, 2, softcap=1.7))
    assert [next(kernel.name for kernel in KERNELS if kernel.supports(query, value, call)) for call in calls] == [
        "banded",
        "sdpa",
        "dense",
    ]

"""Gates between full and sliding attention, against dense float64 attention written out here."""

import pytest
import torch
from torch import Tensor, nn

from bosch.attention.interface import STATE, AttentionState, attention_forward, hybrid_attention
from bosch.decoder import Decoder
from bosch.heads import HeadMask
from families import FAMILIES, make_model
from reference import visible

GROUPS, HEADS, TOKENS, WINDOW = 3, 5, 19, 4


class Layer(nn.Module):
    """An attention module with nothing in it but what it is told to do."""

    def __init__(self, state: AttentionState) -> None:
        super().__init__()
        setattr(self, STATE, state)


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Query (2, 15, 19, 7), key (2, 3, 19, 7), value (2, 3, 19, 11)."""
    generator = torch.Generator().manual_seed(0)
    shapes = (GROUPS * HEADS, 7), (GROUPS, 7), (GROUPS, 11)
    return tuple(torch.randn(2, n, TOKENS, d, generator=generator, dtype=dtype) for n, d in shapes)


def dense(seen: Tensor, softcap: float | None, sink_logits: Tensor | None) -> Tensor:
    """(B, T, H, Dv) where every head sees the pairs `seen` (B, T, T)."""
    query, key, value = tensors()
    key, value = key.repeat_interleave(HEADS, 1), value.repeat_interleave(HEADS, 1)
    scores = query @ key.mT * 0.3
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    weights = scores.exp() * seen[:, None]
    total = weights.sum(-1, keepdim=True)
    if sink_logits is not None:
        total = total + sink_logits.exp()[None, :, None, None]
    return (weights / total @ value).transpose(1, 2)


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("softcap", "with_sink_logits"), [(None, False), (1.3, False), (None, True)], ids=["plain", "softcap", "sink"]
)
def test_gates_mix_full_and_sliding_attention(
    sinks: int, padded: bool, softcap: float | None, with_sink_logits: bool
) -> None:
    gates = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    sink_logits = torch.linspace(-1, 2, GROUPS * HEADS, dtype=torch.float64) if with_sink_logits else None
    real = torch.ones(2, TOKENS, dtype=torch.bool)
    real[1, :5] = not padded
    layer = Layer(AttentionState(gates=gates, window=WINDOW, sinks=sinks))
    output, _ = attention_forward(
        layer, *tensors(), real if padded else None, scaling=0.3, softcap=softcap, s_aux=sink_logits
    )
    full, sliding = (dense(visible(real, *kind), softcap, sink_logits) for kind in ((None, 0), (WINDOW, sinks)))
    share = gates.repeat_interleave(HEADS)[:, None]
    expected = share * full + (1 - share) * sliding
    torch.testing.assert_close(output[real], expected[real], rtol=0, atol=1e-12)


def test_a_layer_that_slides_by_itself_is_mixed_with_the_narrower_window() -> None:
    real = torch.ones(2, TOKENS, dtype=torch.bool)
    gates = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    for own, narrower in ((3, 3), (7, WINDOW)):
        layer = Layer(AttentionState(gates=gates, window=WINDOW))
        output, _ = attention_forward(layer, *tensors(), None, scaling=0.3, sliding_window=own)
        native, local = (dense(visible(real, width, 0), None, None) for width in (own, narrower))
        share = gates.repeat_interleave(HEADS)[:, None]
        torch.testing.assert_close(output, share * native + (1 - share) * local, rtol=0, atol=1e-12)


def test_gates_have_the_gradient_of_finite_differences() -> None:
    def mixed(gates: Tensor) -> Tensor:
        layer = Layer(AttentionState(gates=gates, window=WINDOW))
        output, _ = attention_forward(layer, *tensors(), None, scaling=0.3)
        return output.square().sum((1, 3))

    gates = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mixed, gates, atol=1e-8)


def test_outputs_keep_the_dtype_of_the_model() -> None:
    """Gates are wider than bfloat16, in which steps of a training would be lost."""
    layer = Layer(AttentionState(gates=torch.tensor([0.0, 0.501, 1.0]), window=WINDOW))
    output, _ = attention_forward(layer, *tensors(torch.bfloat16), None, scaling=0.3)
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize("family", FAMILIES)
def test_open_gates_are_the_full_model_and_closed_ones_the_sliding_model(family: str) -> None:
    """Bit for bit: a factor of 1 changes nothing, and one of 0 leaves nothing."""
    decoder = Decoder(make_model(family))
    ids = torch.randint(1, 97, (2, TOKENS), generator=torch.Generator().manual_seed(0))
    for gate, anchor in ((1.0, HeadMask.all_full), (0.0, HeadMask.all_sliding)):
        expected = decoder.forward(ids, anchor(decoder.layout, WINDOW, sinks=2))
        torch.testing.assert_close(gated_logits(decoder, ids, gate), expected, rtol=0, atol=0)


@torch.no_grad()
def gated_logits(decoder: Decoder, ids: Tensor, gate: float) -> Tensor:
    """(B, T, vocabulary), with the same gate on every unit."""
    hidden, calls = decoder.open(ids)
    with hybrid_attention(decoder.model):
        for layer, units in enumerate(decoder.layout.units_per_layer):
            gates = torch.full((units,), gate) if units else None
            hidden = decoder.run(layer, hidden, calls, AttentionState(gates=gates, window=WINDOW, sinks=2))
        return decoder.logits(hidden.flatten(0, 1), calls).unflatten(0, ids.shape)

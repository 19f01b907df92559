"""Reordered weights, against the model as it was: dense masks over its own eager attention, in float64."""

import copy

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from bosch.deploy.layers import attention_layers, layout_of
from bosch.deploy.permutation import full_first, permute_heads
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.selectors import random_mask
from families import FAMILIES, make_model
from reference import reference_logits

# Norms and softmaxes that a family computes in float32 whatever its dtype: OLMo 2's norm spans all heads, so that its
# sum runs in another order, and the eager softmax of the reference is in float32 for every family.
TOLERANCE = 2e-5


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(1, 97, shape, generator=torch.Generator().manual_seed(5))


def reverse(model: PreTrainedModel, only: int | None = None) -> HeadLayout:
    """Turn the KV heads of every layer round, or of one."""
    layers = attention_layers(model)
    counts = [layer.num_units if only in (None, index) else 0 for index, layer in enumerate(layers)]
    permute_heads(model, layers, [tuple(reversed(range(count))) for count in counts])
    return layout_of(layers)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_function_is_unchanged_and_the_hybrid_moves_with_its_mask(family):
    model = make_model(family, torch.float64)
    moved = copy.deepcopy(model)
    layout = reverse(moved)
    mask = random_mask(HeadMask.all_full(layout, 4, 2), 0.5, 1)
    assert any(len(set(row)) == 2 for row in mask.full)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), moved.parameters(), strict=True))
    everything = HeadMask.all_full(layout, 4)
    expected = reference_logits(model, tokens(2, 17), everything)
    found = reference_logits(moved, tokens(2, 17), everything)
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)
    permuted = HeadMask(mask.layout, tuple(tuple(reversed(row)) for row in mask.full), 4, 2)
    hybrid = reference_logits(model, tokens(2, 17), mask)
    assert (hybrid - expected).abs().max() > 1e-2
    torch.testing.assert_close(reference_logits(moved, tokens(2, 17), permuted), hybrid, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("options", [{"use_qk_norm": True}, {}], ids=["norm per head", "no norm"])
def test_norms_with_a_row_per_head_move_too(options):
    from transformers import CohereConfig, CohereForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 2}
    model = CohereForCausalLM(
        CohereConfig(**sizes, num_attention_heads=6, num_key_value_heads=3, pad_token_id=0, **options)
    )
    for name, parameter in model.named_parameters():
        parameter.data += 0.3 * torch.randn_like(parameter) * ("norm" in name)
    expected = model.double()(tokens(1, 11)).logits
    permute_heads(model, attention_layers(model), [(2, 0, 1), ()])
    torch.testing.assert_close(model(tokens(1, 11)).logits, expected, rtol=0, atol=1e-6)


def test_full_heads_come_first_in_their_order():
    layout = HeadLayout((4, 0, 3))
    mask = HeadMask(layout, ((False, True, False, True), (), (True, True, True)), 4)
    assert full_first(mask) == ((1, 3, 0, 2), (), (0, 1, 2))


class Gated(nn.Module):
    """A projection with a low-rank adapter beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer, self.lora_A = base, nn.Linear(base.in_features, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + 0 * self.lora_A(x).sum()


def adapter(attention: nn.Module) -> str:
    attention.q_proj = Gated(attention.q_proj)
    return "q_proj.base_layer.weight"


def gate(attention: nn.Module) -> str:
    attention.head_gate = nn.Parameter(torch.ones(6))
    return "head_gate"


def quantized(attention: nn.Module) -> str:
    weight = nn.Parameter(torch.zeros(48, 48, dtype=torch.uint8), requires_grad=False)
    attention.q_proj.register_parameter("weight", weight)
    attention.q_proj.forward = lambda x: x
    return "q_proj.weight"


def too_long(attention: nn.Module) -> str:
    attention.q_proj = nn.Linear(48, 96)
    attention.q_proj.forward = lambda x: x
    return "q_proj.weight"


@pytest.mark.parametrize("change", [adapter, gate, quantized, too_long])
def test_an_unknown_parameter_is_named_and_nothing_moves(change):
    model = make_model("llama")
    name = change(model.model.layers[1].self_attn)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(BoschError, match=f"'{name}'"):
        reverse(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_projection_without_a_weight_is_named():
    model = make_model("llama")
    attention = model.model.layers[0].self_attn
    attention.k_proj.forward = lambda x, weight=attention.k_proj.weight.data: x @ weight.T
    del attention.k_proj.weight
    with pytest.raises(BoschError, match="has weights of o_proj, q_proj, v_proj"):
        reverse(model, only=0)


def test_weights_shared_by_two_layers_are_refused():
    model = make_model("llama")
    model.model.layers[1].self_attn.q_proj = model.model.layers[0].self_attn.q_proj
    with pytest.raises(BoschError, match="shared with another layer"):
        reverse(model)


def test_a_model_that_knows_its_heads_by_number_gets_its_weights_back():
    model = make_model("llama")
    project = model.model.layers[0].self_attn.v_proj.forward
    model.model.layers[0].self_attn.v_proj.forward = lambda x: project(x) * torch.arange(1, 17)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(BoschError, match="knows the heads by number"):
        reverse(model, only=0)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())

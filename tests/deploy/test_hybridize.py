"""Turning a model into a hybrid and back, and what is refused."""

import copy

import pytest
import torch
from dense_reference import dense_hybrid, is_greedy
from stock_models import hybrid_of, some_mask, stock_model, tokens
from torch import nn
from transformers import AutoModelForCausalLM, MistralForCausalLM, Qwen3ForCausalLM

from bosch.deploy import hybridize, mask_of, restore_full_attention
from bosch.deploy.layers import attention_layers, layout_of
from bosch.deploy.modeling_bosch import BoschMixin
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from families import FAMILIES, make_config, make_model


@pytest.mark.parametrize("family", FAMILIES)
def test_all_heads_full_is_the_stock_model_and_the_mask_can_be_read_back(family):
    model = stock_model(family)
    mask = some_mask(model, 7, 2)
    hybrid = copy.deepcopy(hybrid_of(model, mask))
    assert isinstance(hybrid, type(model))
    assert mask_of(hybrid.config) == mask
    expected = model(tokens(2, 19)).logits
    full = hybrid_of(model, HeadMask.all_full(mask.layout, 7, 2))
    torch.testing.assert_close(full(tokens(2, 19)).logits, expected, rtol=0, atol=1e-5)
    assert not torch.allclose(hybrid(tokens(2, 19)).logits, expected, rtol=0, atol=1e-2)
    restored = restore_full_attention(hybrid)
    assert type(restored) is type(model)
    assert type(restored.config) is type(model.config)
    torch.testing.assert_close(restored(tokens(2, 19)).logits, expected, rtol=0, atol=1e-5)
    assert torch.equal(
        restored.generate(tokens(1, 9), max_new_tokens=3), model.generate(tokens(1, 9), max_new_tokens=3)
    )


def test_everything_sliding_is_the_same_weights_in_a_mistral():
    model = make_model("mistral", torch.float64)
    sliding = MistralForCausalLM(make_config("mistral", sliding_window=5)).double().eval()
    sliding.load_state_dict(model.state_dict())
    hybrid = hybridize(model, some_mask(model, 5, ratio=1.0))
    torch.testing.assert_close(hybrid(tokens(2, 23)).logits, sliding(tokens(2, 23)).logits, rtol=0, atol=1e-9)


def test_the_query_heads_of_a_group_slide_together():
    """Six query heads over two groups, over one, and over six: those of the sliding group change, no others."""
    for num_groups in (2, 1, 6):
        model = make_model("qwen3", torch.float64, num_key_value_heads=num_groups)
        layout = layout_of(attention_layers(model))
        rows = [[True] * num_groups for _ in range(3)]
        rows[0][-1] = False
        mask = HeadMask(layout, tuple(map(tuple, rows)), 3)
        outputs = []
        for candidate in (model, hybridize(copy.deepcopy(model), mask)):
            found = []
            hook = candidate.model.layers[0].self_attn.o_proj.register_forward_pre_hook(
                lambda _, args, found=found: found.append(args[0].detach().unflatten(-1, (6, 8)))
            )
            candidate(tokens(1, 13))
            hook.remove()
            outputs.append(found[0])
        changed = (outputs[0] - outputs[1]).abs().amax((0, 1, 3)) > 1e-6
        per_group = 6 // num_groups
        assert changed.tolist() == [head >= 6 - per_group for head in range(6)]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_layers_with_windows_of_their_own(family):
    """Logits, generation and the cache of such a hybrid; and the mask can be read back."""
    model = stock_model(family)
    layers = layout_of(attention_layers(model)).eligible_layers
    mask = some_mask(model, 4, 2, ratio=1.0).give_window(11, layers[1:2])
    hybrid = hybrid_of(model, mask)
    assert mask_of(hybrid.config).key() == mask.key()
    assert hybrid.config.bosch["layers"][layers[1]]["window"] == 11
    with torch.no_grad(), dense_hybrid(model, mask):
        expected = model(input_ids=tokens(2, 31), use_cache=False).logits
    torch.testing.assert_close(hybrid(tokens(2, 31)).logits, expected, rtol=0, atol=1e-5)
    output = hybrid.generate(tokens(1, 9), max_new_tokens=20)
    assert is_greedy(model, mask, output, 9, torch.ones(1, 9, dtype=torch.int64))


def test_a_native_window_stays_and_full_heads_of_such_a_layer_are_no_wider():
    """Gemma 2: its own window of 9 stays on its sliding layers, whatever the mask's window is."""
    model = stock_model("gemma2")
    assert layout_of(attention_layers(model)).units_per_layer == (0, 2, 0, 2)
    hybrid = hybrid_of(model, some_mask(model, 4, 2))
    assert [layer["window"] for layer in hybrid.config.bosch["layers"]] == [9, 4, 9, 4]
    assert [layer["sinks"] for layer in hybrid.config.bosch["layers"]] == [0, 2, 0, 2]


def test_a_config_that_only_names_a_window_is_one_of_full_attention():
    model = make_model("qwen3", torch.float64, sliding_window=16, use_sliding_window=False)
    assert layout_of(attention_layers(model)).units_per_layer == (2, 2, 2)


def test_soft_caps_and_learned_sinks_count_in_sliding_heads_too():
    for family, change in (("gemma2", {"attn_logit_softcapping": 50.0}), ("gpt_oss", {})):
        model = copy.deepcopy(stock_model(family))
        mask = some_mask(model, 4, ratio=1.0)
        before = hybrid_of(stock_model(family), mask)(tokens(1, 17)).logits
        if change:
            model.config.update(change)
            for layer in model.model.layers:
                layer.self_attn.attn_logit_softcapping = change["attn_logit_softcapping"]
        else:
            for layer in model.model.layers:
                layer.self_attn.sinks.data.fill_(5.0)
        with dense_hybrid(model, mask), torch.no_grad():
            expected = model(input_ids=tokens(1, 17), use_cache=False).logits
        hybrid = hybridize(model, mask)
        torch.testing.assert_close(hybrid(tokens(1, 17)).logits, expected, rtol=0, atol=1e-5)
        assert (before - expected).abs().max() > 1e-2


def test_the_pattern_outlives_moves_of_the_model():
    """It is in the config: not in a buffer, which a meta device or a change of dtype could lose."""
    hybrid = copy.deepcopy(hybrid_of(stock_model(), some_mask(stock_model())))
    expected = hybrid.config.bosch
    state = hybrid.state_dict()
    assert state.keys() == stock_model().state_dict().keys()
    with torch.device("meta"):
        empty = type(hybrid)(hybrid.config)
    empty = empty.to_empty(device="cpu").to(torch.bfloat16)
    assert empty.config.bosch == expected
    assert empty(tokens(1, 5)).logits.dtype == torch.bfloat16
    moved = copy.deepcopy(hybrid).to(torch.float32)
    torch.testing.assert_close(moved(tokens(1, 40)).logits.double(), hybrid(tokens(1, 40)).logits, rtol=0, atol=1e-3)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused
# ---------------------------------------------------------------------------------------------------------------------


def rows(*counts):
    return tuple((False,) * count for count in counts)


@pytest.mark.parametrize("counts", [(2, 2), (2, 2, 2, 2), (3, 3, 3), (3, 2)], ids=str)
def test_a_mask_for_another_model_is_refused_and_the_model_stays(counts):
    """Too few layers, too many, another number of heads, layers and heads mixed up."""
    model = make_model("llama")
    expected = model(tokens(1, 9)).logits
    mask = HeadMask(HeadLayout(counts), rows(*counts), 4)
    with pytest.raises(BoschError, match=r"made for a model with .*, but this model has 3 layers x 2 KV heads"):
        hybridize(model, mask)
    assert not isinstance(model, BoschMixin)
    assert torch.equal(model(tokens(1, 9)).logits, expected)


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "phi3", "gemma2"])
def test_heads_selected_by_number_give_the_tokens_of_reordered_ones_and_no_weight_moves(family):
    model = make_model(family, torch.float64)
    mask = some_mask(model, 5, 2)
    before = copy.deepcopy(model.state_dict())
    by_number = hybridize(model, mask, reorder=False)
    assert all(torch.equal(value, before[name]) for name, value in by_number.state_dict().items())
    assert mask_of(by_number.config) == mask
    reordered = hybrid_of(stock_model(family), mask)
    options = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    outputs = [hybrid.generate(tokens(2, 11), **options) for hybrid in (by_number, reordered)]
    assert torch.equal(*outputs)
    full = restore_full_attention(by_number)
    torch.testing.assert_close(full(tokens(2, 19)).logits, stock_model(family)(tokens(2, 19)).logits, rtol=0, atol=1e-5)


def test_weights_that_cannot_be_reordered_stay_and_their_heads_are_selected_by_number():
    """An int8 projection, as a quantized checkpoint has: its rows are of no known place, and need none."""
    model = make_model("llama")
    for layer in model.model.layers:
        layer.self_attn.q_proj = Int8Linear(layer.self_attn.q_proj)
    mask = some_mask(model, 5, 2)
    with dense_hybrid(model, mask), torch.no_grad():
        expected = model(input_ids=tokens(2, 19), use_cache=False).logits
    with pytest.raises(BoschError, match="cannot reorder the heads"):
        hybridize(model, mask, reorder=True)
    hybrid = hybridize(model, mask)
    assert hybrid.config.bosch["reordered"] is False
    torch.testing.assert_close(hybrid(tokens(2, 19)).logits, expected, rtol=0, atol=1e-4)


class Int8Linear(nn.Module):
    """Rows of int8 with a scale each."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.scale = nn.Parameter(linear.weight.data.abs().amax(1, keepdim=True) / 127)
        weight = (linear.weight.data / self.scale.data).round().to(torch.int8)
        self.weight, self.bias = nn.Parameter(weight, requires_grad=False), linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


def test_a_mask_of_four_dimensions_is_followed_as_the_stock_model_follows_it():
    """Bool or additive, without a cache: with all heads full the stock model's logits, with some sliding less."""
    model = stock_model("qwen3", torch.float32)
    allowed = torch.ones(19, 19, dtype=torch.bool).tril()
    allowed[10:, 3:7] = False
    additive = torch.zeros(19, 19).masked_fill(~allowed, torch.finfo(torch.float32).min)
    full = hybrid_of(model, HeadMask.all_full(some_mask(model).layout, 7))
    for mask in (allowed, additive):
        given = mask[None, None].expand(2, 1, -1, -1)
        expected = model(tokens(2, 19), attention_mask=given, use_cache=False).logits
        found = full(tokens(2, 19), attention_mask=given, use_cache=False).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="with biases"):
        full(tokens(2, 19), attention_mask=-torch.rand(2, 1, 19, 19), use_cache=False)
    with pytest.raises(ValueError, match=r"shape \(2, 6, 19, 19\)"):
        full(tokens(2, 19), attention_mask=torch.ones(2, 6, 19, 19, dtype=torch.bool), use_cache=False)


def test_a_restored_model_is_saved_as_its_stock_class(tmp_path):
    """Also when it comes from a checkpoint with code of its own, whose name must not stay in the config."""
    model = make_model("llama")
    expected = model(tokens(1, 19)).logits
    hybridize(model, some_mask(model)).save_pretrained(tmp_path / "hybrid")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hybrid", trust_remote_code=True)
    loaded.config.auto_map = {"AutoModelForCausalLM": "modeling_bosch.BoschLlamaForCausalLM"}
    restore_full_attention(loaded).save_pretrained(tmp_path / "stock")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "stock", trust_remote_code=True)
    assert type(again) is type(stock_model())
    torch.testing.assert_close(again(tokens(1, 19)).logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "4"])
def test_windows_that_are_none(window):
    with pytest.raises(BoschError, match="window must be an integer of at least 1"):
        HeadMask(HeadLayout((2, 2, 2)), rows(2, 2, 2), window)


def test_hybrids_quantized_models_and_strangers_are_refused():
    model = make_model("llama")
    mask = some_mask(model)
    model.config.quantization_config = {"quant_method": "fp8"}
    with pytest.raises(BoschError, match="is quantized"):
        hybridize(model, mask, reorder=True)
    del model.config.quantization_config
    hybridize(model, mask)
    with pytest.raises(BoschError, match="a hybrid already"):
        hybridize(model, mask)

    class Own(Qwen3ForCausalLM):
        pass

    with pytest.raises(BoschError, match="Own is not a model class of transformers' own"):
        hybridize(Own(make_config("qwen3")), mask)


def test_a_config_without_the_pattern_is_refused():
    hybrid = hybrid_of(stock_model(), some_mask(stock_model()))
    config = copy.deepcopy(hybrid.config)
    del config.bosch
    with pytest.raises(ValueError, match=r"config\.bosch is missing"):
        type(hybrid)(config)


def test_heads_that_do_not_divide_are_refused_when_the_model_is_made_a_hybrid():
    model = make_model("qwen3", num_key_value_heads=4)
    with pytest.raises(BoschError, match="cannot share 4 KV heads evenly"):
        attention_layers(model)


def test_attention_of_another_kind_is_refused():
    from transformers import BloomConfig, BloomForCausalLM

    model = BloomForCausalLM(BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4))
    with pytest.raises(BoschError, match="does not route its attention"):
        hybridize(model, HeadMask(HeadLayout((4, 4)), rows(4, 4), 4))

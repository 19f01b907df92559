import pytest
import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    DynamicCache,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from bosch.attention.interface import STATE, observed
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.selectors import random_mask
from families import FAMILIES, make_model
from reference import native_window, reference_logits

WINDOW = 4


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, 97, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=FAMILIES)
def decoder(request) -> Decoder:
    return Decoder(make_model(request.param))


def test_layout_leaves_out_layers_that_slide_already(decoder):
    model = decoder.model
    groups = getattr(model.config, "num_key_value_heads", None) or model.config.num_attention_heads
    expected = [0 if native_window(model, layer) else groups for layer in range(model.config.num_hidden_layers)]
    assert decoder.layout.units_per_layer == tuple(expected)


def test_all_full_is_the_stock_model_and_the_model_is_left_as_it_was(decoder):
    before = decoder.model.config._attn_implementation
    stock = decoder.model(input_ids=tokens(2, 23)).logits
    ours = decoder.forward(tokens(2, 23), HeadMask.all_full(decoder.layout, WINDOW))
    torch.testing.assert_close(ours, stock, rtol=0, atol=1e-5)
    assert decoder.model.config._attn_implementation == before


@pytest.mark.parametrize("sinks", [0, 2])
def test_hybrid_forward_equals_dense_masks(decoder, sinks):
    for seed in range(3):
        mask = random_mask(HeadMask.all_full(decoder.layout, WINDOW, sinks), 0.5, seed)
        ours = decoder.forward(tokens(2, 19), mask)
        torch.testing.assert_close(ours, reference_logits(decoder.model, tokens(2, 19), mask), rtol=0, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_equal_dense_masks_and_the_rows_alone(decoder, side):
    """Left padding with sinks: each row's sinks are its own first real tokens, and no row turns to NaN."""
    ids, real = tokens(3, 19), torch.ones(3, 19, dtype=torch.int64)
    for row, padding in enumerate((0, 7, 15)):
        if padding:
            real[row, slice(padding) if side == "left" else slice(-padding, None)] = 0
    mask = random_mask(HeadMask.all_full(decoder.layout, WINDOW, sinks=2), 0.5, seed=1)
    ours = decoder.forward(ids, mask, attention_mask=real)
    reference = reference_logits(decoder.model, ids, mask, attention_mask=real)
    assert ours.isfinite().all()
    torch.testing.assert_close(ours[real.bool()], reference[real.bool()], rtol=0, atol=1e-4)
    if decoder.config.model_type == "gpt_oss":
        return  # its yarn table depends on absolute positions, and padding moves them
    for row in range(3):
        alone = decoder.forward(ids[row : row + 1, real[row].bool()], mask)[0]
        torch.testing.assert_close(ours[row, real[row].bool()], alone, rtol=0, atol=2e-3)


def test_information_travels_exactly_as_far_as_the_windows_carry_it():
    """A changed token at p moves the logits at p .. p + L(W - 1) under sliding, all later ones under a full unit."""
    decoder = Decoder(make_model("llama", initializer_range=0.5))
    layout = decoder.layout
    sliding = HeadMask.all_sliding(layout, WINDOW)
    one_full = sliding.assign({(1, 0): True})
    sinks = HeadMask.all_sliding(layout, WINDOW, sinks=2)
    assert reached(decoder, sliding, 5) == list(range(5, 5 + 3 * (WINDOW - 1) + 1)) == list(range(5, 15))
    assert reached(decoder, one_full, 5) == list(range(5, 24))
    assert reached(decoder, sinks, 1) == list(range(1, 24))
    assert reached(decoder, sinks, 2) == list(range(2, 12))


def reached(decoder: Decoder, mask: HeadMask, position: int) -> list[int]:
    changed = tokens(1, 24).clone()
    changed[0, position] = changed[0, position] % 96 + 1
    difference = (decoder.forward(tokens(1, 24), mask) - decoder.forward(changed, mask)).abs().amax(-1)[0]
    return difference.nonzero().flatten().tolist()


def test_window_of_one_sees_itself_only():
    decoder = Decoder(make_model("qwen3"))
    mask = HeadMask.all_sliding(decoder.layout, 1)
    assert reached(decoder, mask, 5) == [5]
    assert decoder.forward(tokens(2, 9), mask).isfinite().all()


def test_all_sliding_equals_the_same_weights_as_a_mistral_with_that_window():
    llama = make_model("mistral", sliding_window=None)
    mistral = make_model("mistral", sliding_window=WINDOW)
    mistral.load_state_dict(llama.state_dict())
    decoder = Decoder(llama)
    ours = decoder.forward(tokens(2, 23), HeadMask.all_sliding(decoder.layout, WINDOW))
    torch.testing.assert_close(ours, mistral(input_ids=tokens(2, 23)).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 1), (3, 3)])
def test_query_heads_follow_their_own_group(heads, groups):
    """Group g serves query heads g*R .. (g+1)*R - 1, and no others: read off each head's output before o_proj."""
    model = make_model("llama", num_attention_heads=heads, num_key_value_heads=groups, num_hidden_layers=1)
    decoder = Decoder(model)
    full = HeadMask.all_full(decoder.layout, 2)
    seen = []
    model.model.layers[0].self_attn.o_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    for mask in (full, full.localize([(0, groups - 1)])):
        decoder.forward(tokens(1, 11), mask)
    difference = (seen[0] - seen[1]).unflatten(-1, (heads, -1)).abs().amax((0, 1, 3))
    assert difference.nonzero().flatten().tolist() == list(range(heads - heads // groups, heads))


def test_learned_sinks_and_soft_caps_reach_the_kernels():
    for family, change in (("gpt_oss", {}), ("gemma2", {"attn_logit_softcapping": 2.0})):
        model = make_model(family)
        other = make_model(family, **change)
        other.load_state_dict(model.state_dict())
        if family == "gpt_oss":
            for layer in other.model.layers:
                layer.self_attn.sinks.data.fill_(5.0)
        decoders = Decoder(model), Decoder(other)
        for mask in (HeadMask.all_full(decoders[0].layout, 4), HeadMask.all_sliding(decoders[0].layout, 4)):
            first, second = (decoder.forward(tokens(1, 17), mask) for decoder in decoders)
            assert (first - second).abs().max() > 1e-2
            torch.testing.assert_close(second, reference_logits(other, tokens(1, 17), mask), rtol=0, atol=1e-4)


def test_a_declared_window_that_is_not_used_is_full_attention():
    decoder = Decoder(make_model("qwen3", sliding_window=4, use_sliding_window=False))
    assert decoder.layout.units_per_layer == (2, 2, 2)


def test_masks_follow_the_interface_in_chunks_and_one_by_one():
    """Search mode under a growing cache: one shot, token by token, and in chunks all give the same logits."""
    model = make_model("qwen3")
    decoder = Decoder(model)
    mask = random_mask(HeadMask.all_full(decoder.layout, WINDOW, sinks=2), 0.5, seed=0)
    ids, whole = tokens(1, 17), decoder.forward(tokens(1, 17), mask)
    for chunks in ([1] * 17, [3, 3, 3, 3, 5], [5, 12], [4, 13], [16, 1]):
        torch.testing.assert_close(_in_chunks(decoder, mask, ids, chunks), whole, rtol=0, atol=1e-4)


def _in_chunks(decoder: Decoder, mask: HeadMask, ids: torch.Tensor, chunks: list[int]) -> torch.Tensor:
    cache, parts = DynamicCache(config=decoder.model.config), []
    with torch.no_grad(), decoder.hybrid(mask):
        for part in ids.split(chunks, dim=1):
            parts.append(decoder.model(input_ids=part, cache=cache, use_cache=True).logits)
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("sinks", [0, 2])
def test_packed_sequences_stay_apart(sinks):
    model = make_model("llama")
    decoder = Decoder(model)
    ids, position_ids = tokens(1, 12), torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]])
    mask = HeadMask.all_sliding(decoder.layout, 3, sinks).assign({(0, 0): True})
    with torch.no_grad(), decoder.hybrid(mask):
        packed = model(input_ids=ids, position_ids=position_ids, use_cache=False).logits
    alone = decoder.forward(ids[:, 5:], mask)
    torch.testing.assert_close(packed[:, 5:], alone, rtol=0, atol=1e-4)


def test_families_that_do_not_route_are_refused_with_the_reason():
    config = AutoConfig.for_model("bloom", vocab_size=97, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(BoschError, match="does not route its attention"):
        Decoder(AutoModelForCausalLM.from_config(config))
    config = AutoConfig.for_model("falcon", vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    with pytest.raises(BoschError, match="does not route its attention"):
        Decoder(AutoModelForCausalLM.from_config(config))


def test_layers_without_attention_have_no_units():
    config = AutoConfig.for_model("mamba", vocab_size=97, hidden_size=32, num_hidden_layers=2, state_size=4)
    with pytest.raises(BoschError, match="attention"):
        Decoder(AutoModelForCausalLM.from_config(config))


def test_uneven_groups_are_refused_at_once():
    with pytest.raises(BoschError, match="expected a multiple"):
        Decoder(make_model("llama", num_attention_heads=4, num_key_value_heads=3))


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_observers_see_what_the_stock_attention_is_given(family):
    """Query and key norms, and each layer's own rotary table, are in what an observer sees."""
    model = make_model(family, dtype=torch.float64)
    decoder = Decoder(model)
    stock, ours = [], []

    def record(module, query, key, value, *args, **kwargs):
        stock.append((query, key))
        return sdpa_attention_forward(module, query, key, value, *args, **kwargs)

    AttentionInterface.register("recorded_sdpa", record)
    AttentionMaskInterface.register("recorded_sdpa", sdpa_mask)
    model.set_attn_implementation("recorded_sdpa")
    with torch.no_grad():
        model(input_ids=tokens(2, 13), use_cache=False)
    model.set_attn_implementation("sdpa")
    with observed(lambda call: ours.append((call.query, call.keys.key))):
        decoder.forward(tokens(2, 13), HeadMask.all_full(decoder.layout, WINDOW))
    assert len(stock) == len(ours) == model.config.num_hidden_layers
    for expected, found in zip(stock, ours, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_fused_projections_are_split_by_the_group_count():
    """Phi3 with 4 query and 2 KV heads of 8: rows 40..47 of the fused matrix are the keys of group 1, which serve query
    heads 2 and 3 only."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "num_hidden_layers": 1}
    model = make_model("phi3", **sizes)
    seen = []
    attention = model.model.layers[0].self_attn
    assert attention.qkv_proj.weight.shape == (64, 32)
    attention.o_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    decoder = Decoder(model)
    seen.clear()
    full = HeadMask.all_full(decoder.layout, WINDOW)
    decoder.forward(tokens(1, 11), full)
    with torch.no_grad():
        attention.qkv_proj.weight[40:48] = 0
    decoder.forward(tokens(1, 11), full)
    difference = (seen[0] - seen[1]).unflatten(-1, (4, 8)).abs().amax((0, 1, 3))
    assert difference.nonzero().flatten().tolist() == [2, 3]


def test_nothing_of_one_prompt_stays_for_the_next():
    """One decoder, prompts of 30, 12 and 50 tokens in turn and in another order: each as from a fresh decoder."""
    decoder = Decoder(make_model("qwen3"))
    mask = random_mask(HeadMask.all_full(decoder.layout, WINDOW, sinks=2), 0.5, seed=0)
    prompts = [tokens(1, length, seed=length) for length in (30, 12, 50)]
    fresh = [Decoder(make_model("qwen3")).forward(prompt, mask) for prompt in prompts]
    for order in ([0, 1, 2], [2, 0, 1]):
        for index in order:
            torch.testing.assert_close(decoder.forward(prompts[index], mask), fresh[index], rtol=0, atol=0)
    assert not any(hasattr(module, STATE) for module in decoder.model.modules())


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "stablelm", "phi"])
def test_families_with_other_names_for_their_parts(model_type):
    """The final norm is what runs after the last layer, whatever it is called."""
    config = AutoConfig.for_model(
        model_type,
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        **({"num_key_value_heads": 4} if model_type == "stablelm" else {}),
        **({"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0} if model_type == "opt" else {}),
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    decoder = Decoder(AutoModelForCausalLM.from_config(config).eval())
    assert decoder.layout.units_per_layer == (4, 4)
    assert decoder.tokens_meet_in_attention_only

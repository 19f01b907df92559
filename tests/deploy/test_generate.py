"""What a hybrid with its cache generates, against dense masks without a cache: token for token."""

import copy

import pytest
import torch
from dense_reference import dense_hybrid, is_greedy
from stock_models import hybrid_of, left_padded, some_mask, stock_model, tokens
from transformers import DynamicCache

from bosch.deploy.modeling_bosch import CACHE
from bosch.heads import HeadMask
from families import FAMILIES
from marks import slow_after

PATTERNS = ["mixed", "all full", "all sliding"]


def masks(model, window, sinks):
    mixed = some_mask(model, window, sinks)
    return {
        "mixed": mixed,
        "all full": HeadMask.all_full(mixed.layout, window, sinks),
        "all sliding": HeadMask.all_sliding(mixed.layout, window, sinks),
    }


def check_greedy(model, mask, batch, num_new, **options):
    hybrid = hybrid_of(model, mask)
    output = hybrid.generate(**batch, max_new_tokens=num_new, **options)
    assert output.shape[1] == batch["input_ids"].shape[1] + num_new
    return is_greedy(model, mask, output, batch["input_ids"].shape[1], batch["attention_mask"])


def unpadded(*shape):
    return {"input_ids": tokens(*shape), "attention_mask": torch.ones(shape, dtype=torch.int64)}


@pytest.mark.parametrize("family", slow_after(4, FAMILIES))
def test_every_family_greedy_in_chunks_padded_and_with_beams(family):
    model = stock_model(family)
    mask = some_mask(model, 7, 2)
    assert any(len(set(row)) == 2 for row in mask.full)
    assert check_greedy(model, mask, unpadded(1, 29), 11)
    assert check_greedy(model, mask, unpadded(1, 29), 11, prefill_chunk_size=5)
    assert check_greedy(model, mask, left_padded(29, 1, 17), 11)
    assert check_greedy(model, mask, left_padded(29, 1, 17), 11, prefill_chunk_size=5)
    batch = left_padded(19, 3)
    with dense_hybrid(model, mask):
        expected = model.generate(**batch, max_new_tokens=7, num_beams=3, use_cache=False)
    assert torch.equal(hybrid_of(model, mask).generate(**batch, max_new_tokens=7, num_beams=3), expected)


@pytest.mark.parametrize(("window", "sinks"), [(1, 4), (7, 0), (7, 4)])
def test_every_chunk_size_around_the_window(window, sinks):
    """A chunk as long as the window must not drive out keys that its own first queries still see."""
    model = stock_model("qwen3")
    mask = some_mask(model, window, sinks)
    for chunk in {None, 1, max(window - 1, 1), window, window + 1}:
        assert check_greedy(model, mask, unpadded(1, 4 * window + 5), 9, prefill_chunk_size=chunk)
        assert check_greedy(model, mask, left_padded(4 * window + 5, 1, window + 2), 9, prefill_chunk_size=chunk)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("num_prompt", [1, 3, 28])
def test_prompts_from_one_token_on(pattern, num_prompt):
    model = stock_model()
    assert check_greedy(model, masks(model, 7, 3)[pattern], unpadded(2, num_prompt), 23)


@pytest.mark.slow
@pytest.mark.parametrize("sinks", [0, 4])
@pytest.mark.parametrize("window", [1, 2, 7, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_two_hundred_tokens(family, window, sinks):
    """Windows, sinks, prompts up to four windows, padding, chunks and beams together."""
    model = stock_model(family)
    mask = some_mask(model, window, sinks)
    batch = left_padded(4 * window, 1, window + 1)
    assert check_greedy(model, mask, batch, 200)
    for num_prompt in {1, window, 4 * window}:
        assert check_greedy(model, mask, unpadded(1, num_prompt), 200 if num_prompt == 1 else 17)
    for chunk in {1, max(window - 1, 1), window, window + 1}:
        assert check_greedy(model, mask, batch, 17, prefill_chunk_size=chunk)
        assert check_greedy(model, mask, unpadded(1, 4 * window), 17, prefill_chunk_size=chunk)
    with dense_hybrid(model, mask):
        expected = model.generate(**batch, max_new_tokens=9, num_beams=3, use_cache=False)
    assert torch.equal(hybrid_of(model, mask).generate(**batch, max_new_tokens=9, num_beams=3), expected)


def test_float32_and_the_tokens_of_single_precision():
    model = stock_model("qwen3", torch.float32)
    assert check_greedy(model, some_mask(model, 7, 2), left_padded(29, 1, 17), 23)


def test_sampling_draws_the_same_tokens():
    model = stock_model()
    mask = some_mask(model, 5, 2)
    options = {"max_new_tokens": 19, "do_sample": True, "num_return_sequences": 3}
    torch.manual_seed(3)
    with dense_hybrid(model, mask):
        expected = model.generate(**left_padded(17, 6), use_cache=False, **options)
    torch.manual_seed(3)
    assert torch.equal(hybrid_of(model, mask).generate(**left_padded(17, 6), **options), expected)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_continuing_from_a_cache_and_reusing_a_prompt(pattern):
    model = stock_model()
    mask = masks(model, 5, 2)[pattern]
    hybrid = hybrid_of(model, mask)
    prompt = tokens(1, 23)
    cache = hybrid.new_cache()
    with torch.no_grad():
        hybrid(prompt, cache=cache)
    for seed in (1, 2):
        ids = torch.cat([prompt, tokens(1, 6, seed=seed)], dim=1)
        first = hybrid.generate(ids, cache=copy.deepcopy(cache), max_new_tokens=9)
        assert is_greedy(model, mask, first, 29, torch.ones_like(ids))
    used = copy.deepcopy(cache)
    first = hybrid.generate(torch.cat([prompt, tokens(1, 6, seed=1)], dim=1), cache=used, max_new_tokens=9)
    longer = torch.cat([first, tokens(1, 11, seed=4)], dim=1)
    second = hybrid.generate(longer, cache=used, max_new_tokens=9)
    assert is_greedy(model, mask, second, longer.shape[1], torch.ones_like(longer))


@pytest.mark.parametrize("pattern", ["mixed", "all sliding"])
def test_prompt_lookup_and_an_assistant_that_is_often_wrong(pattern):
    """Rejected tokens are taken back, also where they had driven others out of the window."""
    model = stock_model()
    mask = masks(model, 4, 2)[pattern]
    hybrid = hybrid_of(model, mask)
    ids = tokens(1, 3).repeat(1, 7)
    draft = hybrid_of(stock_model("llama", torch.float64), masks(model, 3, 0)[pattern])
    for options in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": draft}, {"assistant_model": model}):
        output = hybrid.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=19, **options)
        assert is_greedy(model, mask, output, ids.shape[1], torch.ones_like(ids))


CHUNKS = [[17], [1] * 17, [3, 3, 3, 3, 5], [5, 12], [4, 13], [16, 1]]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sinks", [0, 2])
def test_logits_are_the_same_however_the_tokens_come(sinks, padded):
    model = stock_model("qwen3")
    mask = some_mask(model, 4, sinks)
    hybrid = hybrid_of(model, mask)
    batch = left_padded(17, 10, 2) if padded else unpadded(2, 17)
    ids, real = batch["input_ids"], batch["attention_mask"]
    with torch.no_grad(), dense_hybrid(model, mask):
        expected = model(**batch, use_cache=False).logits[real.bool()]
    for chunks in CHUNKS:
        cache, outputs, stop = hybrid.new_cache(), [], 0
        for chunk in chunks:
            start, stop = stop, stop + chunk
            with torch.no_grad():
                outputs.append(
                    hybrid(
                        ids[:, start:stop],
                        attention_mask=real[:, :stop],
                        position_ids=(real.cumsum(1) - 1).clamp(min=0)[:, start:stop],
                        cache=cache,
                    ).logits
                )
        logits = torch.cat(outputs, dim=1)
        assert logits.isfinite().all()
        torch.testing.assert_close(logits[real.bool()], expected, rtol=0, atol=1e-5)


def test_one_model_serves_prompts_in_turn_and_two_caches_at_once():
    model = stock_model()
    mask = some_mask(model, 5, 2, ratio=1.0)
    hybrid = hybrid_of(model, mask)
    for length in (30, 12, 50, 12):
        output = hybrid.generate(tokens(1, length), max_new_tokens=5, return_dict_in_generate=True)
        assert is_greedy(model, mask, output.sequences, length, torch.ones(1, length, dtype=torch.int64))
        columns = {buffer.shape[2] for layer in output.cache.layers for s in layer.stores for buffer in s.buffers}
        assert columns == {7}
    caches, prompts = [hybrid.new_cache(), hybrid.new_cache()], [tokens(1, 13, seed=1), tokens(1, 19, seed=2)]
    with torch.no_grad():
        for start in range(0, 19, 4):
            logits = [
                hybrid(p[:, start : start + 4], cache=c).logits if start < p.shape[1] else None
                for p, c in zip(prompts, caches, strict=True)
            ]
        with dense_hybrid(model, mask):
            expected = model(input_ids=prompts[1], use_cache=False).logits[:, -1]
    torch.testing.assert_close(logits[1][:, -1], expected, rtol=0, atol=1e-5)


def test_rows_of_pads_stay_finite_and_do_not_reach_the_others():
    """Five tokens after fifteen pads, more pads than the window: no NaN, and the tokens' logits are the row's own."""
    for family in ("llama", "gemma2", "gpt_oss"):
        model = stock_model(family)
        for sinks in (0, 2):
            hybrid = hybrid_of(model, some_mask(model, 4, sinks, ratio=1.0))
            batch = left_padded(20, 5)
            with torch.no_grad():
                logits = hybrid(**batch).logits
                alone = hybrid(batch["input_ids"][1:, 15:]).logits
            assert logits.isfinite().all()
            position_ids = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
            with torch.no_grad():
                logits = hybrid(**batch, position_ids=position_ids).logits
            torch.testing.assert_close(logits[1:, 15:], alone, rtol=0, atol=1e-5)


def test_the_length_is_that_of_all_tokens_whichever_layer_slides():
    model = stock_model()
    layout = some_mask(model).layout
    slides = ((False, False), (True, True), (True, True))
    for rows in (slides, slides[::-1], (slides[1], slides[1], slides[0])):
        hybrid = hybrid_of(model, HeadMask(layout, rows, 4))
        cache = hybrid.new_cache()
        with torch.no_grad():
            hybrid(tokens(1, 20), cache=cache)
        assert cache.get_seq_length() == 20
        assert cache.get_mask_sizes(1, 0) == (21, 0)


def test_other_caches_and_other_attention_are_refused():
    hybrid = hybrid_of(stock_model(), some_mask(stock_model()))
    ids = tokens(1, 9)
    with pytest.raises(ValueError, match=r"new_cache\(\), got DynamicCache"):
        hybrid(ids, cache=DynamicCache())
    for implementation in ("static", "offloaded", "quantized"):
        with pytest.raises(ValueError, match=f"no cache_implementation, got '{implementation}'"):
            hybrid.generate(ids, cache_implementation=implementation, max_new_tokens=2)
    with pytest.raises(ValueError, match="cannot be run with 'sdpa'"):
        hybrid.set_attn_implementation("sdpa")
    cache = hybrid.new_cache()
    hybrid(ids, cache=cache)
    with pytest.raises(ValueError, match="4-D attention mask was given with a cache of 9 tokens"):
        hybrid(ids[:, :2], attention_mask=torch.ones(1, 1, 2, 11, dtype=torch.bool), cache=cache)
    hybrid = copy.deepcopy(hybrid)
    hybrid.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match="would attend to everything"):
        hybrid(ids)


def test_the_cache_goes_by_both_of_its_names():
    """transformers renamed `past_key_values` to `cache`; a cache by either name is used, none is passed over."""
    model = stock_model()
    hybrid = hybrid_of(model, some_mask(model, 7, 2))
    ids = tokens(1, 23)
    expected = hybrid(ids).logits[:, 15:]
    for name in {"past_key_values", CACHE}:
        cache = hybrid.new_cache()
        hybrid(ids[:, :15], **{name: cache})
        found = hybrid(ids[:, 15:], **{name: cache}).logits
        assert cache.get_seq_length() == 23
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        cache = hybrid.new_cache()
        hybrid.generate(ids, max_new_tokens=3, **{name: cache})
        assert cache.get_seq_length() == 25
        with pytest.raises(ValueError, match="expected one made by new_cache"):
            hybrid(ids, **{name: DynamicCache()})

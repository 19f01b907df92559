"""What is timed, what is counted, and what goes through the model meanwhile."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache

from bosch.bench import measure as measuring
from bosch.bench.measure import count_bytes, measure, peak_bytes, reset_peak
from bosch.deploy.hybridize import hybridize
from bosch.heads import HeadLayout, HeadMask
from families import make_model

# SIZES in families: 3 layers, 2 KV heads of 8 numbers in float32.
BYTES_PER_TOKEN = 2 * 8 * 4
MASK = HeadMask(HeadLayout((2, 2, 2)), ((True, False), (False, False), (True, True)), window=11, sinks=3)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_repetition(monkeypatch):
    monkeypatch.setattr(measuring, "PREFILL_SECONDS", 0)


def measurements(model, contexts, chunk=7, new_tokens=5):
    return list(measure(model, contexts, chunk=chunk, new_tokens=new_tokens, seed=0))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("chunk", [7, 100])
def test_cache_bytes_are_those_of_the_formula(family, chunk):
    model = make_model(family)
    original = measurements(model, [5, 29, 61], chunk)
    hybrid = measurements(hybridize(model, MASK), [5, 29, 61], chunk)
    for context, full, small in zip([5, 29, 61], original, hybrid, strict=True):
        assert full.cache_bytes == 6 * context * BYTES_PER_TOKEN
        assert small.cache_bytes == (3 * context + 3 * min(context, 11 + 3)) * BYTES_PER_TOKEN


def test_buffers_that_grow_count_with_their_room():
    (found,) = measurements(hybridize(make_model("llama"), MASK), [127], chunk=100)
    exact = 3 * 127 + 3 * 14
    assert exact < found.cache_bytes / BYTES_PER_TOKEN <= exact + 3 * 127 / 64


def test_a_view_counts_as_what_it_keeps_alive():
    keys, values = torch.zeros(1, 2, 101, 8), torch.zeros(1, 2, 13, 8)
    layer = SimpleNamespace(keys=keys[:, :, -13:], values=values)
    assert count_bytes(SimpleNamespace(layers=[layer])) == (101 + 13) * 2 * 8 * 4
    shared = SimpleNamespace(keys=keys, values=keys[:, :, :7])
    assert count_bytes(SimpleNamespace(layers=[shared])) == 101 * 2 * 8 * 4


@pytest.mark.parametrize("kind", ["original", "hybrid"])
def test_the_context_goes_in_by_chunks_and_the_rest_token_by_token(kind):
    model = make_model("qwen3")
    if kind == "hybrid":
        hybridize(model, MASK)
    entered, seen_by_head, past = [], [], []
    model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen_by_head.append(inputs[0].shape[:2]))
    model.model.register_forward_pre_hook(
        lambda _, __, options: past.append((options.get("cache") or options["past_key_values"]).get_seq_length()),
        with_kwargs=True,
    )
    measurements(model, [16, 29])
    sizes = [7, 7, 2, *[1] * 8, 7, 7, 7, 7, 1, *[1] * 8]
    assert [tokens.shape for tokens in entered] == [(1, size) for size in (64, 64, *sizes)]
    assert past == [0, 64, 0, 7, 14, *range(16, 24), 0, 7, 14, 21, 28, *range(29, 37)]
    assert set(seen_by_head) == {(1, 1)}
    assert len(torch.cat(entered, dim=1).unique()) > 50


def test_original_and_hybrid_get_the_same_tokens():
    model = make_model("llama")
    entered = []
    model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    measurements(model, [29])
    original = torch.cat(entered[-12:], dim=1)
    entered.clear()
    measurements(hybridize(model, MASK), [29])
    assert torch.equal(torch.cat(entered[-12:], dim=1), original)


def clock(monkeypatch, seconds):
    """Time goes on by these durations, one for each thing that is timed."""
    monkeypatch.setattr(measuring, "PREFILL_SECONDS", 1)
    ticks = itertools.chain.from_iterable((0.0, duration) for duration in seconds)
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(ticks))


def test_throughputs_are_tokens_over_the_median_of_the_seconds(monkeypatch):
    clock(monkeypatch, [2.0, 9, 9, 9, 0.5, 0.1, 0.25, 7, 0.2])
    (found,) = measurements(make_model("llama"), [29])
    assert found.context == 29
    assert found.prefill_tokens_per_s == pytest.approx(29 / 2)
    assert found.decode_tokens_per_s == pytest.approx(1 / 0.25)


@pytest.mark.parametrize(
    ("prefills", "median"), [([0.4, 0.5, 0.3], 0.4), ([0.01, 0.02, 0.04, 0.03, 0.05], 0.03), ([0.2, 0.8], 0.5)]
)
def test_short_prefills_are_repeated_and_the_cache_is_that_of_one(monkeypatch, prefills, median):
    clock(monkeypatch, [*prefills, *[1.0] * 8])
    (found,) = measurements(make_model("llama"), [29])
    assert found.prefill_tokens_per_s == pytest.approx(29 / median)
    assert found.cache_bytes == 6 * 29 * BYTES_PER_TOKEN


def test_the_original_keeps_the_windows_that_it_has():
    """Gemma 2's sliding layers: transformers' own cache of them, not one of full attention."""
    model = make_model("gemma2")
    (found,) = measurements(model, [61], chunk=61)
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.arange(61)[None], cache=cache)
    kept = {layer.keys.untyped_storage().data_ptr(): layer.keys.untyped_storage().nbytes() for layer in cache.layers}
    assert found.cache_bytes == 2 * sum(kept.values())


def test_peak_memory_follows_what_was_resident_and_begins_anew():
    before = torch.ones(32 * 2**20)
    del before
    reset_peak(CPU)
    low = peak_bytes(CPU)
    block = torch.ones(16 * 2**20)
    high = peak_bytes(CPU)
    assert 60 * 2**20 < high - low < 90 * 2**20
    del block
    assert peak_bytes(CPU) == pytest.approx(high, abs=2**20)  # Linux counts pages roughly
    reset_peak(CPU)
    assert peak_bytes(CPU) < high - 60 * 2**20

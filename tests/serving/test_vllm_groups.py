"""The choice of pages against vLLM's own functions, which cut heads into groups and reckon what a request reserves."""

import dataclasses
from math import ceil
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs, get_max_concurrency_for_kv_cache_config
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_cache_layout import KVCacheLayout

from bosch.serving.models import held_blocks
from bosch.serving.placement import place
from bosch.serving.specs import FullPages, SlidingPages, placed

BLOCK, MEMORY = 16, 64 << 30


def config(tokens, in_flight, layout="LBNHC", disabled=False):
    """As much of a `VllmConfig` as those functions read."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=disabled),
        cache_config=SimpleNamespace(
            block_size=BLOCK,
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout[layout],
        ),
        speculative_config=None,
        attention_config=SimpleNamespace(hisparse_config=None),
        model_config=SimpleNamespace(
            max_model_len=tokens, original_max_model_len=tokens, hf_config=SimpleNamespace(model_type="llama")
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, tensor_parallel_size=1, pipeline_parallel_size=1, world_size=1
        ),
        max_in_flight_tokens=in_flight,
        num_prefill_lookahead_tokens=0,
    )


def own_spec(window):
    """What vLLM's `Attention` would say of one head."""
    sizes = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 128, "dtype": torch.bfloat16}
    return FullAttentionSpec(**sizes) if window is None else SlidingWindowSpec(**sizes, sliding_window=window)


def planned(windows, cfg):
    """The placement, and vLLM's plan for it."""
    placement = place(windows, {window: held_blocks(cfg, window) for window in {*windows}})
    heads = zip(windows, placement.pages, strict=True)
    specs = {
        f"layers.{i}.attn.head0": placed(own_spec(window), pages, BLOCK) for i, (window, pages) in enumerate(heads)
    }
    [plan] = get_kv_cache_configs(cfg, [specs], [MEMORY])
    return placement, plan


def concurrency(windows, cfg):
    return get_max_concurrency_for_kv_cache_config(cfg, planned(windows, cfg)[1])


head_counts = st.tuples(st.integers(0, 120), st.integers(0, 120), st.integers(0, 40)).filter(any)


@settings(max_examples=40)
@given(head_counts, st.sampled_from([2048, 32768]), st.sampled_from([64, 2048]))
def test_vllm_groups_the_heads_as_they_were_placed_and_reserves_what_was_reckoned(counts, tokens, in_flight):
    windows = [None] * counts[0] + [1024] * counts[1] + [64] * counts[2]
    cfg = config(tokens, in_flight)
    placement, plan = planned(windows, cfg)
    groups = {frozenset(int(name.split(".")[1]) for name in group.layer_names) for group in plan.kv_cache_groups}
    buckets = {frozenset(head for head, own in enumerate(placement.pages) if own == pages) for pages in placement.pages}
    assert groups == buckets
    page = plan.kv_cache_groups[0].kv_cache_spec.page_size_bytes
    block = MEMORY // plan.num_blocks  # a page for every head of the widest group
    needed = sum(ceil(g.kv_cache_spec.max_memory_usage_bytes(cfg) / page) for g in plan.kv_cache_groups) * block
    assert needed / page == pytest.approx(placement.reserved, rel=1e-4)


@pytest.mark.parametrize("full", [30, 56, 75, 100, 112, 124, 150, 168, 190, 223])
def test_capacity_comes_near_the_formula_whatever_the_count(full):
    """28 layers of 8 KV heads, W = 1024, 32,768 tokens of which 2,048 are in flight."""
    windows, cfg = [None] * full + [1024] * (224 - full), config(32768, 2048)
    formula = 224 * 32768 / (full * 32768 + (224 - full) * (1023 + 2048))
    assert concurrency(windows, cfg) / concurrency([None] * 224, cfg) > 0.94 * formula


def test_specs_left_to_vllm_would_save_nothing_here():
    """What the buckets are for: 150 full heads and 74 sliding ones."""
    cfg = config(32768, 2048)
    windows = [None] * 150 + [1024] * 74
    [plan] = get_kv_cache_configs(cfg, [{f"layers.{i}.attn": own_spec(w) for i, w in enumerate(windows)}], [MEMORY])
    left = get_max_concurrency_for_kv_cache_config(cfg, plan)
    assert left < concurrency([None] * 224, cfg) < 0.75 * concurrency(windows, cfg)


def test_specs_keep_what_vllm_says_of_a_head():
    for window, pages in ((None, (None, 3)), (64, (64, 1))):
        spec = own_spec(window)
        kind = FullPages if window is None else SlidingPages
        changed = placed(spec, SimpleNamespace(window=pages[0], bucket=pages[1]), BLOCK)
        assert changed == kind(**dataclasses.asdict(spec), bucket=pages[1])


def test_a_sliding_head_in_full_pages_has_the_spec_of_a_full_one():
    in_full = SimpleNamespace(window=None, bucket=0)
    assert placed(dataclasses.replace(own_spec(64), block_size=8), in_full, BLOCK) == placed(
        own_spec(None), in_full, BLOCK
    )

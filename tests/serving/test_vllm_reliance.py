"""What the plugin relies on in vLLM. When vLLM changes, these fail before anything else, and say what changed."""

import dataclasses
import inspect
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
import torch
from vllm import ModelRegistry
from vllm.config import CompilationConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.model_executor.layers.attention import Attention
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, SlidingWindowManager
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from bosch.errors import BoschError
from bosch.serving.heads import FAMILIES
from bosch.serving.models import SPREADING, held_blocks
from bosch.serving.plugin import check_version, register, vllm_version
from bosch.serving.specs import FullPages, SlidingPages


def test_the_installed_version_is_one_that_is_served():
    check_version(vllm_version())


@pytest.mark.parametrize("found", ["0.31.2", "0.33.0", "1.32.0"])
def test_other_versions_are_refused(found):
    with pytest.raises(BoschError, match=f"vLLM 0.32, found {found}"):
        check_version(found)


def test_vllm_finds_the_plugin():
    [entry] = entry_points(group="vllm.general_plugins", name="bosch")
    assert entry.load() is register


def test_every_family_has_a_model_of_that_name():
    assert set(FAMILIES.values()) <= set(ModelRegistry.models)


def test_attention_takes_what_a_head_gives_it():
    taken = set(inspect.signature(Attention.__init__).parameters)
    assert taken >= {
        "num_heads", "head_size", "scale", "num_kv_heads", "cache_config", "quant_config", "logits_soft_cap",
        "per_layer_sliding_window", "prefix",
    }  # fmt: skip
    source = inspect.getsource(Attention.__init__)
    for name in ("use_direct_call", "sliding_window", "has_sink", "kv_sharing_target_layer_name", "layer_name"):
        assert f"self.{name}" in source
    assert list(inspect.signature(Attention.forward).parameters)[:4] == ["self", "query", "key", "value"]
    assert list(inspect.signature(Attention.get_kv_cache_spec).parameters) == ["self", "vllm_config"]


def test_the_config_says_what_is_read_of_it():
    for owner, names in {
        CompilationConfig: ("static_forward_context", "splitting_ops"),
        SchedulerConfig: ("disable_hybrid_kv_cache_manager", "max_num_batched_tokens"),
        ParallelConfig: SPREADING,
    }.items():
        assert {field.name for field in dataclasses.fields(owner)} >= set(names)
    assert isinstance(VllmConfig.max_in_flight_tokens, property)


def test_fields_of_the_specs_are_those_that_are_known():
    """A new field may be one that `FullPages.merge` or `placed` should treat in its own way."""
    shared = {
        "block_size", "dcp_sharded", "block_stride_alignment", "max_tp_shards", "num_kv_heads", "head_size", "dtype",
        "head_size_v", "kv_quant_mode", "page_size_padded", "num_head_slots", "state_content_bytes", "tokens_per_state",
    }  # fmt: skip
    own = {
        AttentionSpec: set(),
        FullAttentionSpec: {"sliding_window", "attention_chunk_size", "non_causal"},
        SlidingWindowSpec: {"sliding_window", "extra_retained_tokens"},
    }
    for spec, more in own.items():
        assert {field.name for field in dataclasses.fields(spec)} == shared | more


def test_a_spec_with_a_bucket_has_the_manager_of_its_kind():
    sizes = {"block_size": 16, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32, "bucket": 1}
    assert KVCacheSpecRegistry.get_manager_class(FullPages(**sizes)) is FullAttentionManager
    assert KVCacheSpecRegistry.get_manager_class(SlidingPages(**sizes, sliding_window=8)) is SlidingWindowManager


@pytest.mark.parametrize("window", [None, 1, 64, 5000])
@pytest.mark.parametrize(("tokens", "in_flight"), [(4096, 512), (1000, 8192), (33, 7)])
def test_a_request_holds_as_many_blocks_as_vllm_reckons(window, tokens, in_flight):
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=tokens),
        cache_config=SimpleNamespace(block_size=16),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        max_in_flight_tokens=in_flight,
    )
    sizes = {"block_size": 16, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32}
    spec = FullAttentionSpec(**sizes) if window is None else SlidingWindowSpec(**sizes, sliding_window=window)
    assert held_blocks(config, window) * spec.page_size_bytes == spec.max_memory_usage_bytes(config)

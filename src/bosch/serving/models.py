"""vLLM's own models with their attention split by head: `BoschLlamaForCausalLM` and so on, made when asked for."""

import functools
import logging
from typing import Any

from torch import nn
from vllm import ModelRegistry
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index

from bosch.errors import BoschError
from bosch.serving.attention import HeadsAttention
from bosch.serving.configs import as_original
from bosch.serving.heads import LayerHeads, read_heads
from bosch.serving.placement import Pages, Placement, Window, place

SPREADING = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
)
"""Fields of vLLM's `ParallelConfig` that spread the heads, layers or tokens of a request over several processes."""

logger = logging.getLogger("vllm.bosch")


def __getattr__(name: str) -> Any:
    base = name.removeprefix("Bosch")
    if base == name or base not in ModelRegistry.models:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _hybrid(name, base)


@functools.cache
def _hybrid(name: str, base_name: str) -> type[nn.Module]:
    base: Any = ModelRegistry.models[base_name].load_model_cls()

    def __init__(self: Any, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        config = vllm_config.model_config.hf_config
        layers = read_heads(config.bosch)
        check_parallel(vllm_config)
        as_original(config)
        base.__init__(self, vllm_config=vllm_config, prefix=prefix)
        split_attention(self, layers, vllm_config)

    return type(name, (base,), {"__init__": __init__, "__module__": __name__, "__doc__": f"A hybrid of {base_name}."})


def check_parallel(config: VllmConfig) -> None:
    """Make sure that every process has all heads of all layers.

    Raises:
        BoschError: the heads, layers or tokens of a request would be spread over several processes.
    """
    parallel = config.parallel_config
    for name in SPREADING:
        if (size := getattr(parallel, name)) != 1:
            raise BoschError(
                f"a hybrid cannot be served with {name}={size}; expected 1 (data_parallel_size may be any)"
            )


def split_attention(model: nn.Module, layers: tuple[LayerHeads, ...], config: VllmConfig) -> None:
    """Put one attention for each KV head in the place of every layer's own.

    Args:
        model: one of vLLM's, its weights not loaded yet.
        layers: which heads slide.
        config: of the engine.

    Raises:
        BoschError: the model has other layers or heads than the hybrid, or attention of a kind that cannot be split.
    """
    owners: list[Any] = [module for module in model.modules() if isinstance(getattr(module, "attn", None), Attention)]
    if len(owners) != len(layers):
        raise BoschError(f"the hybrid has {len(layers)} layers, but vLLM's model has {len(owners)} with attention")
    rows = [_windows(owner.attn, layers[extract_layer_index(owner.attn.layer_name)]) for owner in owners]
    pages = iter(_place([window for row in rows for window in row], config).pages)
    for owner, row in zip(owners, rows, strict=True):
        owner.attn = HeadsAttention(owner.attn, row, [next(pages) for _ in row])


def _windows(whole: Attention, layer: LayerHeads) -> list[Window]:
    """What each KV head of a layer sees."""
    _check_attention(whole)
    if not layer.full:
        return [whole.sliding_window] * whole.num_kv_heads
    if whole.sliding_window is not None:
        raise BoschError(
            f"{whole.layer_name} slides by itself over {whole.sliding_window} tokens; expected a mask without its heads"
        )
    if len(layer.full) != whole.num_kv_heads:
        raise BoschError(
            f"{whole.layer_name} has {whole.num_kv_heads} KV heads in vLLM, but {len(layer.full)} in the hybrid"
        )
    return [None if full else layer.window for full in layer.full]


def _check_attention(whole: Attention) -> None:
    """Refuse what `HeadAttention` would not carry over."""
    reasons = {
        f"is a {type(whole).__name__}": type(whole) is not Attention,
        "has learned sinks": whole.has_sink,
        "has ALiBi slopes": getattr(whole.impl, "alibi_slopes", None) is not None,
        "shares another layer's keys and values": whole.kv_sharing_target_layer_name is not None,
        "has scales for a quantized cache in its checkpoint": hasattr(whole, "quant_method"),
    }
    for reason, applies in reasons.items():
        if applies:
            raise BoschError(f"{whole.layer_name} {reason}, so it cannot be split by head; expected plain attention")


def _place(windows: list[Window], config: VllmConfig) -> Placement:
    """Choose the pages of all heads, and say in the log what they save."""
    all_full = len(windows) * held_blocks(config, None)
    if config.scheduler_config.disable_hybrid_kv_cache_manager:
        logger.warning(
            "No memory is saved: the hybrid KV cache manager is off (by an option, or because a KV connector does not "
            "support it), so sliding heads keep the keys and values of all tokens."
        )
        return Placement((Pages(None, 0),) * len(windows), all_full)
    placement = place(windows, {window: held_blocks(config, window) for window in {*windows}})
    logger.info(
        "A request of %s tokens reserves %s blocks of one KV head, %s with all heads full: %.2f times as many fit.",
        f"{config.model_config.max_model_len:,}",
        f"{placement.reserved:,}",
        f"{all_full:,}",
        all_full / placement.reserved,
    )
    return placement


def held_blocks(config: VllmConfig, window: Window) -> int:
    """How many blocks of one head vLLM reserves for a request of the full length.

    Args:
        config: of the engine.
        window: of the pages.
    """
    tokens, size = config.model_config.max_model_len, config.cache_config.block_size
    if window is None:
        return -(-tokens // size)
    # As `SlidingWindowSpec.max_admission_blocks_per_request`: the window may begin in the middle of a block.
    return -(-min(window - 1 + config.max_in_flight_tokens, tokens) // size) + 1

"""What a model's config says of its hybrid: which KV heads of each layer slide, and over how many tokens."""

import dataclasses
from typing import Any

from bosch.errors import BoschError
from bosch.heads import HeadMask

FAMILIES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
"""Model types whose attention in vLLM is one `Attention` a layer, called `attn`, with the class that serves them."""


@dataclasses.dataclass(frozen=True)
class LayerHeads:
    """The KV heads of one layer.

    Args:
        full: of each KV head, in the order of the weights, whether it keeps full attention; empty for a layer that no
            mask switches, which attends as its family does.
        window: W of the others, in tokens, the query's own included.
    """

    full: tuple[bool, ...]
    window: int


def read_heads(bosch: Any) -> tuple[LayerHeads, ...]:
    """The heads of every layer, from `config.bosch`: what `bosch export` wrote, whose weights have the full heads
    first, or the content of a `mask.json`, for the weights of the original model.

    Raises:
        BoschError: it is neither, or the sliding heads keep sinks, which vLLM's sliding attention does not.
    """
    if isinstance(bosch, dict) and "layers" in bosch:
        layers, sinks = _exported(bosch["layers"])
    else:
        mask = HeadMask.from_json(bosch)
        layers = tuple(LayerHeads(row, mask.window_of(layer)) for layer, row in enumerate(mask.full))
        sinks = mask.sinks if mask.num_localized else 0
    if sinks:
        raise BoschError(
            f"its sliding heads keep {sinks} sinks, which vLLM's sliding attention has no room for; expected a mask "
            "searched with --sinks 0"
        )
    return layers


def check_family(model_type: str) -> None:
    """Make sure that hybrids of a family can be served.

    Args:
        model_type: of the original model, such as "llama".

    Raises:
        BoschError: vLLM does not route the family's attention in a way that can be split by head, or it was not tried.
    """
    if model_type not in FAMILIES:
        raise BoschError(f"hybrids of {model_type!r} cannot be served by vLLM; expected one of {', '.join(FAMILIES)}")


def _exported(layers: Any) -> tuple[tuple[LayerHeads, ...], int]:
    try:
        found = tuple(
            LayerHeads(tuple(place < layer["full"] for place in range(len(layer["heads"]))), int(layer["window"]))
            for layer in layers
        )
        return found, max(layer["sinks"] for layer in layers if layer["full"] < max(1, len(layer["heads"])))
    except (KeyError, TypeError) as error:
        raise BoschError(f"config.bosch is not what `bosch export` writes: {error!r} in {layers!r:.80}") from None
    except ValueError:  # no head slides
        return found, 0

"""What deploying must know of each layer: its attention module, its heads and the window it may have of its own."""

import dataclasses

import torch
from torch import nn
from transformers import PreTrainedModel

from bosch.attention.interface import Observation, hybrid_attention, observed
from bosch.decoder import check_own_keys, count_units, errors_in_words, input_device
from bosch.errors import BoschError
from bosch.heads import HeadLayout


@dataclasses.dataclass(frozen=True)
class AttentionLayer:
    """One layer's attention, as two tokens meet it.

    Args:
        module: the attention module.
        num_heads: H, query heads.
        num_groups: G, KV heads.
        key_dim: D, of queries and keys.
        value_dim: Dv, of values.
        native_window: in tokens, the layer's own; None = full attention.
        num_units: KV heads that a mask may switch: G, or 0 where the layer is not eligible.
    """

    module: nn.Module
    num_heads: int
    num_groups: int
    key_dim: int
    value_dim: int
    native_window: int | None
    num_units: int


def attention_layers(model: PreTrainedModel) -> tuple[AttentionLayer | None, ...]:
    """The layers of a model, bottom first, found by a dry run of two tokens; None for a layer without attention.

    Raises:
        BoschError: a layer has more than one attention, keys that are another layer's, or an attention module that
            does not say which layer it is of.
    """
    seen: dict[int | None, list[Observation]] = {}

    def note(observation: Observation) -> None:
        seen.setdefault(getattr(observation.module, "layer_idx", None), []).append(observation)

    tokens = torch.zeros(1, 2, dtype=torch.int64, device=input_device(model))
    with errors_in_words(model), torch.no_grad(), hybrid_attention(model), observed(note):
        model(input_ids=tokens, use_cache=False)
    numbers = range(model.config.get_text_config(decoder=True).num_hidden_layers)
    check_own_keys([seen.get(layer, []) for layer in numbers])
    if strangers := seen.keys() - set(numbers):
        raise BoschError(
            f"an attention module of {type(model).__name__} says that it is of layer {strangers.pop()}; expected one "
            f"of the {len(numbers)} layers"
        )
    for layer, calls in seen.items():
        if len(calls) != 1:
            raise BoschError(
                f"layer {layer} of {type(model).__name__} called transformers' attention interface {len(calls)} "
                "times; expected once, as in Llama, Qwen or Gemma"
            )
    return tuple(_layer(seen[layer][0]) if layer in seen else None for layer in numbers)


def layout_of(layers: tuple[AttentionLayer | None, ...]) -> HeadLayout:
    """The units that a mask for these layers has."""
    return HeadLayout(tuple(layer.num_units if layer else 0 for layer in layers))


def _layer(observation: Observation) -> AttentionLayer:
    keys = observation.keys
    return AttentionLayer(
        observation.module,
        num_heads=observation.query.shape[1],
        num_groups=keys.key.shape[1],
        key_dim=keys.key.shape[-1],
        value_dim=keys.value.shape[-1],
        native_window=observation.call.window,
        num_units=count_units([observation]),
    )

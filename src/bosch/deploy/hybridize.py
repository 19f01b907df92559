"""From a live model and a mask to a live hybrid, and back to the model with full attention."""

from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from bosch.decoder import errors_in_words, input_device
from bosch.deploy import modeling_bosch
from bosch.deploy.layers import AttentionLayer, attention_layers, layout_of
from bosch.deploy.modeling_bosch import CACHE, IMPLEMENTATION, BoschMixin
from bosch.deploy.permutation import full_first, permute_heads
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask

CACHE_LAYERS = {
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
}
"""What a hybrid's cache has something in place of."""


def hybridize(model: PreTrainedModel, mask: HeadMask, *, reorder: bool | None = None) -> BoschMixin:
    """Turn a model into the hybrid that a mask describes, in place: no second copy of the weights is made.

    The heads of each layer are reordered, full ones first, or selected by number as the tokens come; the object becomes
    a `Bosch...`, a subclass of what it was, whose `generate()` and `forward()` use a cache that holds no more than each
    head needs.

    Args:
        model: a causal language model of transformers, in any floating dtype, on any device; or one that sees images
            as well, with a language model inside.
        mask: made for a model of this layout, with window and sinks.
        reorder: whether to reorder the heads. By number, no weight is touched, and what a pass adds is one copy of its
            own queries, keys and values. None: reordered where the weights are known, else by number.

    Returns:
        The same object. `new_cache()` gives its cache; `restore_full_attention` turns it back.

    Raises:
        BoschError: the mask is for another layout, the model is a hybrid already, not a class of transformers' own, or
            cannot keep the small cache; or its heads were to be reordered and cannot be. The model is then as it was.
    """
    layers = deployable_layers(model)
    if mask.layout != layout_of(layers):
        raise BoschError(f"the mask was made for a model with {mask.layout}, but this model has {layout_of(layers)}")
    orders = full_first(mask)
    reordered = reorder is not False and _reorder(model, layers, orders, required=reorder is True)
    model.config.get_text_config(decoder=True).bosch = {
        "layers": [
            _describe(layer, number, order, mask)
            for number, (layer, order) in enumerate(zip(layers, orders, strict=True))
        ],
        **({} if reordered else {"reordered": False}),
    }
    _become(model, getattr(modeling_bosch, f"Bosch{type(model).__name__}"), IMPLEMENTATION)
    if model.generation_config is not None:
        model.generation_config.cache_implementation = None  # some checkpoints ask for a cache of their own
    return model  # type: ignore[return-value]


def restore_full_attention(model: BoschMixin) -> PreTrainedModel:
    """Turn a hybrid back into its base class with full attention, in place. Its heads stay reordered, which the model
    computes the same with."""
    base = base_class(model)
    del model.config.get_text_config(decoder=True).bosch
    model.config.__dict__.pop("auto_map", None)  # of the checkpoint it may come from, whose code is not needed any more
    _become(model, base, "sdpa" if base._supports_sdpa else "eager")
    return model


def set_window(model: BoschMixin, window: int) -> None:
    """Give all heads that a mask made sliding another window, in place; layers that slide by themselves keep theirs.

    Args:
        model: a hybrid.
        window: W, in tokens, at least 1; of caches that are made from now on.
    """
    for layer in model.config.get_text_config(decoder=True).bosch["layers"]:
        if layer["heads"]:
            layer["window"] = window


def base_class(model: BoschMixin) -> Any:
    """The class of transformers that a hybrid was made of."""
    base = type(model).__mro__[2]  # after its own and what makes it a hybrid
    assert issubclass(base, PreTrainedModel)
    return base


def mask_of(config: Any) -> HeadMask:
    """The mask that a hybrid's config describes, its KV heads as the original model counts them."""
    layers = config.get_text_config(decoder=True).bosch["layers"]
    rows = tuple(tuple(place < layer["full"] for place in _places(layer["heads"])) for layer in layers)
    switched = [layer for layer in layers if layer["heads"]] or layers[:1]
    window = min(layer["window"] for layer in switched)
    windows = tuple(layer["window"] if layer["heads"] else window for layer in layers)
    layer_windows = windows if max(windows) > window else ()
    return HeadMask(HeadLayout(tuple(map(len, rows))), rows, window, switched[0]["sinks"], layer_windows)


def _places(heads: list[int]) -> list[int]:
    return [heads.index(head) for head in range(len(heads))]


def deployable_layers(model: PreTrainedModel) -> tuple[AttentionLayer | None, ...]:
    """The layers of a model that a hybrid can be made of.

    Raises:
        BoschError: no hybrid can be made of it; the reason is given.
    """
    name = type(model).__name__
    if isinstance(model, BoschMixin):
        raise BoschError(f"this {name} is a hybrid already; expected the original model")
    if getattr(transformers, name, None) is not type(model):
        raise BoschError(f"{name} is not a model class of transformers' own (merge adapters first)")
    if getattr(modeling_bosch, f"Bosch{name}", None) is None:
        raise BoschError(f"{name} takes no cache called {CACHE!r}, so it cannot be given a smaller one")
    layers = attention_layers(model)
    cache = _own_cache(model)
    if type(cache) is not DynamicCache:
        raise BoschError(
            f"{name} keeps a {type(cache).__name__} of its own, which cannot be made smaller head by head; expected a "
            "family that keeps a DynamicCache"
        )
    stock: list[Any] = cache.layers
    for number, (layer, held) in enumerate(zip(layers, stock, strict=False)):
        if layer is None:
            continue
        if type(held) not in CACHE_LAYERS:
            raise BoschError(
                f"layer {number} of {name} keeps a {type(held).__name__} in its cache; expected keys and values alone, "
                "or beside the states of a linear layer"
            )
        kept = (held.keys.shape[1], held.keys.shape[-1], held.values.shape[-1])
        if kept != (layer.num_groups, layer.key_dim, layer.value_dim):
            raise BoschError(
                f"layer {number} of {name} attends to other keys than it keeps in its cache ({kept[0]} heads of "
                f"{kept[1]} + {kept[2]} numbers, made {layer.num_groups} of {layer.key_dim} + {layer.value_dim}), so "
                "no head can be left out of it"
            )
    return layers


@torch.no_grad()
def _own_cache(model: PreTrainedModel) -> Any:
    """The cache that a model makes for itself."""
    tokens = torch.zeros(1, 2, dtype=torch.int64, device=input_device(model))
    with errors_in_words(model):
        return getattr(model(input_ids=tokens, use_cache=True), CACHE, None)


def _reorder(
    model: PreTrainedModel,
    layers: tuple[AttentionLayer | None, ...],
    orders: tuple[tuple[int, ...], ...],
    required: bool,
) -> bool:
    """Reorder the heads; False if that cannot be done and is not required."""
    try:
        if getattr(model, "is_quantized", False) or getattr(model.config, "quantization_config", None) is not None:
            raise BoschError(
                f"this {type(model).__name__} is quantized, so its heads cannot be reordered; expected floating weights"
            )
        permute_heads(model, layers, orders)
    except BoschError:
        if required:
            raise
        return False
    return True


def _describe(layer: AttentionLayer | None, number: int, order: tuple[int, ...], mask: HeadMask) -> dict[str, Any]:
    """What config.bosch says of a layer: full heads first, then window and sinks of the others; and for each place the
    KV head that was there in the original, none in a layer that the mask does not switch."""
    if row := mask.full[number]:
        return {"full": sum(row), "window": mask.window_of(number), "sinks": mask.sinks, "heads": list(order)}
    if layer is None:
        return {"full": 0, "window": mask.window, "sinks": 0, "heads": []}
    if layer.native_window is not None:
        return {"full": 0, "window": layer.native_window, "sinks": 0, "heads": []}
    return {"full": layer.num_groups, "window": mask.window, "sinks": 0, "heads": []}


def _become(model: PreTrainedModel, kind: Any, implementation: str) -> None:
    """Change the class of a model and of its config; only the text model inside attends otherwise than before."""
    model.config.__class__ = kind.config_class
    model.__class__ = kind
    model.config.get_text_config(decoder=True)._attn_implementation = implementation


def register_auto_classes() -> None:
    """Register a hybrid of every family of causal language models; its classes are made when one is first loaded."""
    for model_type, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        AutoConfig.register(f"bosch_{model_type}", _config_on_demand(f"Bosch{name}"), exist_ok=True)


def _config_on_demand(model_name: str) -> Any:
    """Stands for a config class where transformers looks one up; importing all families would take seconds."""

    def from_dict(config: dict[str, Any], **options: Any) -> Any:
        model_class = getattr(modeling_bosch, model_name)
        AutoModelForCausalLM.register(model_class.config_class, model_class, exist_ok=True)
        return model_class.config_class.from_dict(config, **options)

    body = {"__module__": modeling_bosch.__name__, "from_dict": staticmethod(from_dict)}
    return type(f"{model_name}ConfigOnDemand", (), body)

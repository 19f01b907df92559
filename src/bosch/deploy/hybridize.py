"""From a live model and a mask to a live hybrid, and back to the model with full attention."""

from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from bosch.deploy import modeling_bosch
from bosch.deploy.layers import AttentionLayer, attention_layers, layout_of
from bosch.deploy.modeling_bosch import IMPLEMENTATION, BoschMixin
from bosch.deploy.permutation import full_first, permute_heads
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask


def hybridize(model: PreTrainedModel, mask: HeadMask) -> BoschMixin:
    """Turn a model into the hybrid that a mask describes, in place: no second copy of the weights is made.

    The heads of each layer are reordered, full ones first; the object becomes a `Bosch...ForCausalLM`, a subclass of
    what it was, whose `generate()` and `forward()` use a cache that holds no more than each head needs.

    Args:
        model: a causal language model of transformers, in any floating dtype, on any device.
        mask: made for a model of this layout, with window and sinks.

    Returns:
        The same object. `new_cache()` gives its cache; `restore_full_attention` turns it back.

    Raises:
        BoschError: the mask is for another layout, the model is a hybrid already, quantized, not a text-only class of
            transformers' own, or its heads cannot be reordered. The model is then as it was.
    """
    _check(model)
    layers = attention_layers(model)
    if mask.layout != layout_of(layers):
        raise BoschError(f"the mask was made for a model with {mask.layout}, but this model has {layout_of(layers)}")
    orders = full_first(mask)
    permute_heads(model, layers, orders)
    model.config.bosch = {
        "layers": [
            _describe(layer, number, order, mask)
            for number, (layer, order) in enumerate(zip(layers, orders, strict=True))
        ]
    }
    _become(model, getattr(modeling_bosch, f"Bosch{type(model).__name__}"), IMPLEMENTATION)
    if model.generation_config is not None:
        model.generation_config.cache_implementation = None  # some checkpoints ask for a cache of their own
    return model  # type: ignore[return-value]


def restore_full_attention(model: BoschMixin) -> PreTrainedModel:
    """Turn a hybrid back into its base class with full attention, in place. Its heads stay reordered, which the model
    computes the same with."""
    base = base_class(model)
    del model.config.bosch
    _become(model, base, "sdpa" if base._supports_sdpa else "eager")
    return model


def set_window(model: BoschMixin, window: int) -> None:
    """Give all heads that a mask made sliding another window, in place; layers that slide by themselves keep theirs.

    Args:
        model: a hybrid.
        window: W, in tokens, at least 1; of caches that are made from now on.
    """
    for layer in model.config.bosch["layers"]:
        if layer["heads"]:
            layer["window"] = window


def base_class(model: BoschMixin) -> Any:
    """The class of transformers that a hybrid was made of."""
    base = type(model).__mro__[2]  # after its own and what makes it a hybrid
    assert issubclass(base, PreTrainedModel)
    return base


def mask_of(config: Any) -> HeadMask:
    """The mask that a hybrid's config describes, its KV heads as the original model counts them."""
    layers = config.bosch["layers"]
    rows = tuple(tuple(place < layer["full"] for place in _places(layer["heads"])) for layer in layers)
    switched = [layer for layer in layers if layer["heads"]] or layers[:1]
    window = min(layer["window"] for layer in switched)
    windows = tuple(layer["window"] if layer["heads"] else window for layer in layers)
    layer_windows = windows if max(windows) > window else ()
    return HeadMask(HeadLayout(tuple(map(len, rows))), rows, window, switched[0]["sinks"], layer_windows)


def _places(heads: list[int]) -> list[int]:
    return [heads.index(head) for head in range(len(heads))]


def _check(model: PreTrainedModel) -> None:
    name = type(model).__name__
    if isinstance(model, BoschMixin):
        raise BoschError(f"this {name} is a hybrid already; expected the original model")
    if getattr(transformers, name, None) is not type(model) or model.config.get_text_config() is not model.config:
        raise BoschError(f"{name} is not a text-only model class of transformers' own (merge adapters first)")
    if getattr(model, "is_quantized", False) or getattr(model.config, "quantization_config", None) is not None:
        raise BoschError(f"this {name} is quantized, so its heads cannot be reordered; expected floating weights")


def _describe(layer: AttentionLayer, number: int, order: tuple[int, ...], mask: HeadMask) -> dict[str, Any]:
    """What config.bosch says of a layer: full heads first, then window and sinks of the others; and for each place the
    KV head that was there in the original, none in a layer that the mask does not switch."""
    if row := mask.full[number]:
        return {"full": sum(row), "window": mask.window_of(number), "sinks": mask.sinks, "heads": list(order)}
    if layer.native_window is not None:
        return {"full": 0, "window": layer.native_window, "sinks": 0, "heads": []}
    return {"full": layer.num_groups, "window": mask.window, "sinks": 0, "heads": []}


def _become(model: PreTrainedModel, kind: Any, implementation: str) -> None:
    """Change the class of a model and of its config, which all its layers share."""
    model.config.__class__ = kind.config_class
    model.__class__ = kind
    model.config._attn_implementation = implementation


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

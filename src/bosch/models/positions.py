"""How many positions a model was made for, and more of them by YaRN (Peng et al., 2309.00071)."""

import math
from typing import TYPE_CHECKING, Any

from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def num_positions(config: "PreTrainedConfig") -> int | None:
    """Longest sequence that a model was made for, in tokens; None where its config does not say."""
    return getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)


def extend_positions(config: "PreTrainedConfig", factor: float) -> None:
    """Scale the rotary embedding that a config describes, in place, as transformers does, and raise its positions.

    Where layers that slide by themselves have a rotary embedding of their own, it stays: they never look further back
    than they were trained to.

    Args:
        config: of a model that is not loaded yet.
        factor: how many times the positions; above 1. The paper (C.2) takes 2 for 64k and 4 for 128k.

    Raises:
        BoschError: the model has no rotary embedding, or one that is scaled already.
    """
    text = config.get_text_config(decoder=True)
    rope: dict[str, Any] | None = getattr(text, "rope_parameters", None)
    positions = num_positions(config)
    if not rope or positions is None:
        raise BoschError(f"YaRN scales rotary embeddings, and a {config.model_type} has none")
    full = rope if "rope_type" in rope else rope.get("full_attention") or {}
    if full.get("rope_type") != "default":
        raise BoschError(
            f"this model's rotary embedding is scaled already ({full.get('rope_type')}); expected one that is not"
        )
    full |= {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": positions}
    text.max_position_embeddings = math.ceil(positions * factor)

"""Low-rank adapters (LoRA) in place of whole weights: less memory for gradients and moments, and smaller steps."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bosch.common.lookup import import_extra

SCALING = 2.0
"""What the product of an adapter's two matrices is multiplied by: alpha / rank."""

NAME = "default"


def add_adapters(model: PreTrainedModel, rank: int, seed: int) -> None:
    """Give every linear layer but the output head an adapter, in place; they alone are trained from now on.

    Args:
        model: any causal language model; it computes what it did before, as adapters begin at zero.
        rank: of the adapters, at least 1.
        seed: of their first matrices.

    Raises:
        BoschError: peft is not installed.
    """
    peft = import_extra("peft", "training low-rank adapters", "train")
    config = peft.LoraConfig(r=rank, lora_alpha=SCALING * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    torch.manual_seed(seed)
    peft.inject_adapter_in_model(config, model, adapter_name=NAME)


def merge_adapters(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the model without adapters that computes the same: W + alpha / rank * B A.

    Args:
        weights: of a model with adapters, or without, by name.
    """
    merged = {}
    for name, weight in weights.items():
        if ".lora_" in name:
            continue
        layer, inner, kind = name.rpartition(".base_layer.")
        if inner and kind == "weight":
            low, high = (weights[f"{layer}.lora_{matrix}.{NAME}.weight"] for matrix in "AB")
            weight = weight + SCALING * (high @ low)
        merged[f"{layer}.{kind}" if inner else name] = weight
    return merged

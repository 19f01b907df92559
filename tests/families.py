"""A small random model of every family that the package is tried on. Weights are wide (std 0.5 where the family bears
it), so that one wrong key moves the logits far beyond any tolerance."""

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}

FAMILIES: dict[str, tuple[str, dict]] = {
    "llama": ("llama", {"attention_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "qwen3_moe": (
        "qwen3_moe",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1},
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "phi3": ("phi3", {"sliding_window": None}),
    "gemma2": (
        "gemma2",
        {"attn_logit_softcapping": 1.0, "query_pre_attn_scalar": 8, "sliding_window": 9, "num_hidden_layers": 4},
    ),
    "gemma3": ("gemma3_text", {"sliding_window": 9, "sliding_window_pattern": 2, "num_hidden_layers": 4}),
    "gpt_oss": (
        "gpt_oss",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 9, "num_hidden_layers": 4},
    ),
    "olmo2": ("olmo2", {}),
    "smollm3": ("smollm3", {}),
    "granite": ("granite", {"attention_multiplier": 0.5, "logits_scaling": 2.0}),
    "cohere2": ("cohere2", {"sliding_window": 9, "sliding_window_pattern": 2, "num_hidden_layers": 4}),
    "gpt_neox": ("gpt_neox", {"num_key_value_heads": None, "rotary_pct": 0.5}),
}


def make_config(family: str, **changes: object):
    """The family's small config."""
    model_type, own = FAMILIES[family]
    values = {name: value for name, value in {**SIZES, **own, **changes}.items() if value is not None or name in own}
    if family == "gpt_neox":
        del values["num_key_value_heads"], values["head_dim"]
    return CONFIG_MAPPING[model_type](**values)


def make_model(family: str, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: object) -> PreTrainedModel:
    """A seeded random model of the family, in eval mode; norms, biases and sinks are random as well."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make_config(family, **changes), dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif name.endswith(("bias", "sinks")):
                parameter.normal_(std=0.5)
    if dtype == torch.float64 and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.eval()

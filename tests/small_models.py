"""A small random model of any causal-LM class of the installed transformers, by its `model_type`.

The sizes below go to every config that has such a setting, by whichever name; what a family needs besides is in `OWN`.
"""

import copy
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "d_model": 48,
    "n_embd": 48,
    "intermediate_size": 56,
    "ffn_dim": 56,
    "n_inner": 56,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_heads": 6,
    "n_head": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "n_positions": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "sliding_window": 9,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
    "layer_types": None,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "vocab_size_per_layer_input": 97,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "mamba_d_state": 8,
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "num_experts_per_token": 2,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 56,
    "decoder_ffn_dim": 56,
}

MOST_PARAMETERS = 2_000_000
LEFT_OUT = object()
"""In place of a value: the family has no such setting, or computes it."""

SLIDING_THEN_FULL = ["sliding_attention", "full_attention"] * 2
MAMBA = {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_d_state": 8}
LATENT = {"head_dim": LEFT_OUT, "num_key_value_heads": 6}

OWN: dict[str, dict[str, Any]] = {
    "bamba": {**MAMBA, "layer_types": LEFT_OUT, "attn_layer_indices": [1, 3]},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {"layer_types": ["full_attention"] * 4},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "dots1": {"layer_types": ["full_attention"] * 4},
    "falcon_h1": {**MAMBA, "layer_types": LEFT_OUT, "mamba_d_ssm": 96},
    "gemma3_text": {"layer_types": SLIDING_THEN_FULL},
    "gemma3n_text": {
        "layer_types": SLIDING_THEN_FULL,
        "num_kv_shared_layers": 2,
        "intermediate_size": [56] * 4,
        "hidden_size_per_layer_input": 8,
        "activation_sparsity_pattern": [0.0] * 4,
        "altup_num_inputs": 2,
        "laurel_rank": 8,
    },
    "gemma4_text": {"layer_types": SLIDING_THEN_FULL, "hidden_size_per_layer_input": 8, "global_head_dim": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "num_layers": 4},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {
        **MAMBA,
        "shared_intermediate_size": 24,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "kimi_linear": {"linear_head_dim": 8, "linear_num_heads": 6},
    "kolibri1": {"layer_types": SLIDING_THEN_FULL},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
    "mimo_v2_flash": {"num_key_value_heads": 3, "swa_num_key_value_heads": 3, "swa_num_attention_heads": 6},
    "minimax": {"layer_types": ["linear_attention", "full_attention"] * 2, "sliding_window": None},
    "ministral": {"layer_types": SLIDING_THEN_FULL},
    "ministral3": {"sliding_window": None},
    "mistral": {"sliding_window": None},
    "mixtral": {"sliding_window": None},
    "nemotron_h": {
        "layer_types": LEFT_OUT,
        "num_hidden_layers": LEFT_OUT,
        "layers_block_type": ["linear_attention", "full_attention", "moe", "full_attention"],
        "mamba_num_heads": 6,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
        "moe_shared_expert_intermediate_size": 24,
    },
    "phi3": {"sliding_window": None},
    "starcoder2": {"sliding_window": None},
    "zamba2": {
        "layer_types": LEFT_OUT,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "n_mamba_heads": 6,
        "mamba_d_state": 8,
        "num_key_value_heads": 6,
        "adapter_rank": 4,
    },
    "zamba": {
        "layer_types": LEFT_OUT,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "n_mamba_heads": 2,
        "num_key_value_heads": 6,
        "mamba_dt_rank": 4,
    },
    "recurrent_gemma": {"layer_types": LEFT_OUT, "head_dim": LEFT_OUT},
    "glm4_moe_lite": LATENT,
    "sarvam_mla": LATENT,
    "youtu": LATENT,
    "minicpm3": LATENT,
    "axk1": LATENT,
    "deepseek_v32": LATENT,
    "glm_moe_dsa": LATENT,
    "beam": LATENT,
    "bailing_hybrid": {**LATENT, "layer_types": ["linear_attention", "full_attention"] * 2},
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16},
}


def model_types() -> list[str]:
    """Every `model_type` that `AutoModelForCausalLM` knows."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def class_name(model_type: str) -> str:
    """The class that `AutoModelForCausalLM` makes of it."""
    return MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]


def small_config(model_type: str, **changes: Any) -> PreTrainedConfig:
    """The family's small config."""
    kind = CONFIG_MAPPING[model_type]
    known = {kind.attribute_map.get(name, name) for name in kind().to_dict()} | set(kind.attribute_map)
    own = OWN.get(model_type, {}) | changes
    sizes = {name: value for name, value in SIZES.items() if name in known}
    return kind(**{name: value for name, value in (sizes | own).items() if value is not LEFT_OUT})


def small_model(model_type: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A seeded random model of the family in float32, in eval mode; norms, biases and sinks are random as well."""
    torch.manual_seed(seed)
    kind = getattr(transformers, class_name(model_type))
    config = small_config(model_type, **changes)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in kind._from_config(copy.deepcopy(config)).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"its config stays large: {size:,} parameters")
    model = kind._from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith(("bias", "sinks")):
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()

"""transformers' Auto classes taught to load hybrids, without running the code that a checkpoint carries.

A hybrid of a Qwen3 says in its config that it is a `bosch_qwen3`. transformers knows no such type, and so can never
take it for a Qwen3 and attend to everything in silence; once the types are registered, it loads as what it is.
"""

from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from bosch.deploy import modeling_bosch


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

"""Configs of hybrids as vLLM reads them: `llamaHybridConfig` and so on, made when first asked for.

Each says that it is of its family's own type, so that all of vLLM that asks for the type treats a hybrid as it treats
the original. Its class is another than the family's, so that transformers, in the same process, still cannot take it
for the original and attend to everything unnoticed. Classes are found by name, as vLLM sends configs to processes of
its own.
"""

import functools
from typing import Any

from bosch.serving.heads import FAMILIES, check_family, read_heads

SUFFIX = "HybridConfig"


def config_reader(model_type: str) -> Any:
    """What stands for a config class where transformers looks one up.

    Args:
        model_type: of the original model.
    """

    def from_dict(config: dict[str, Any], **options: Any) -> Any:
        check_family(model_type)
        read_heads(config.get("bosch"))
        return _hybrid_config(model_type).from_dict({**config, "model_type": model_type}, **options)

    return type(f"{model_type}_reader", (), {"__module__": __name__, "from_dict": staticmethod(from_dict)})


def as_original(config: Any) -> None:
    """Give a hybrid's config its family's own class, in place, for a model whose attention is split and whose parts
    look for that class. A config that has it already stays as it is."""
    if type(config).__name__.endswith(SUFFIX):
        config.__class__ = type(config).__bases__[0]


def __getattr__(name: str) -> Any:
    model_type = name.removesuffix(SUFFIX)
    if model_type == name or model_type not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _hybrid_config(model_type)


@functools.cache
def _hybrid_config(model_type: str) -> Any:
    from transformers import CONFIG_MAPPING

    return type(f"{model_type}{SUFFIX}", (CONFIG_MAPPING[model_type],), {"__module__": __name__})

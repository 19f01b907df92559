"""Getting a model: by name from the cache, from a directory, or from the Hugging Face hub."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.common.files import to_path
from bosch.common.lookup import lookup
from bosch.errors import BoschError, in_words
from bosch.models.packaged import MODELS, fetch
from bosch.models.positions import extend_positions
from bosch.models.positions import num_positions as positions_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@in_words()
def load_model(
    name_or_path: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    yarn: float | None = None,
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A causal language model in evaluation mode, and its tokenizer.

    Args:
        name_or_path: a name of `MODELS` (fetched on first use), else a directory, else a hub id. Write `./name` for a
            directory that is called like a known model.
        dtype: "float32"; "bfloat16"; "checkpoint", the one that the weights are stored in; or "auto": bfloat16 where
            its matrix products are fast, else float32.
        device: a torch device, or "auto": the GPU if there is one.
        trust_remote_code: let the checkpoint bring Python code of its own.
        yarn: so many times the positions, as in `extend_positions`; None = as the checkpoint has them.

    Raises:
        BoschError: there is no such model, it is no causal language model, weights of it are missing, its positions
            cannot be extended, or the device or dtype is not to be had.
    """
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch_device = _resolve_device(device)
    torch_dtype = _resolve_dtype(dtype, torch_device)
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
    source = _resolve_source(name_or_path)
    options = _loading_options(source, trust_remote_code)
    with _loading_errors(source):
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        if yarn is not None:
            options["config"] = config = AutoConfig.from_pretrained(source, **options)
            extend_positions(config, yarn)
            tokenizer.model_max_length = config.get_text_config(decoder=True).max_position_embeddings
        options |= {"dtype": torch_dtype, "device_map": torch_device, "output_loading_info": True}
        loaded: Any = AutoModelForCausalLM.from_pretrained(source, **options)
    model, found = loaded
    _check_complete(source, found)
    return model, tokenizer


def _check_complete(source: Path | str, found: Mapping[str, Any]) -> None:
    """transformers draws at random what a checkpoint lacks, and only warns."""
    lacking = sorted(map(str, [*found.get("missing_keys", ()), *found.get("mismatched_keys", ())]))
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise BoschError(
            f"the checkpoint {source} lacks weights of its model, or has them in another shape: "
            f"{', '.join(lacking[:3])}{more}; expected all of them"
        )


def check_tokens(model: "PreTrainedModel", largest_id: int) -> None:
    """Refuse token ids that a model has no embedding for.

    Raises:
        BoschError: both numbers are named.
    """
    weight: Any = model.get_input_embeddings().weight
    if largest_id >= len(weight):
        raise BoschError(
            f"the text has the token {largest_id}, but the model has {len(weight)} embeddings; expected the tokenizer "
            "that belongs to the model"
        )


@in_words()
def random_model(
    name_or_path: str,
    *,
    num_positions: int,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
    trust_remote_code: bool = False,
) -> "PreTrainedModel":
    """A model of some config with random weights, in evaluation mode; of the checkpoint only the config is read.

    Args:
        name_or_path, dtype, device, trust_remote_code: as for `load_model`.
        num_positions: the model gets at least so many, in tokens, whatever its config says.
        seed: of the weights.

    Raises:
        BoschError: as `load_model`.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch_device = _resolve_device(device)
    torch_dtype = _resolve_dtype(dtype, torch_device)
    source = _resolve_source(name_or_path)
    with _loading_errors(source):
        config = AutoConfig.from_pretrained(source, **_loading_options(source, trust_remote_code))
        if (positions := positions_of(config)) is not None:
            config.get_text_config(decoder=True).max_position_embeddings = max(positions, num_positions)
        torch.manual_seed(seed)
        with torch_device:
            model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype, trust_remote_code=trust_remote_code)
    return model.eval()


def _loading_options(source: Path | str, trust_remote_code: bool) -> dict[str, Any]:
    is_local = isinstance(source, Path) or not _hub_answers(source)
    return {"trust_remote_code": trust_remote_code, "local_files_only": is_local}


def _resolve_source(name_or_path: str) -> Path | str:
    """A local directory that holds a model, or else what must be a hub id."""
    path = to_path(name_or_path)
    name_or_path = os.fspath(name_or_path)
    if name_or_path in MODELS:
        return fetch(name_or_path)
    with contextlib.suppress(RuntimeError):  # ~name of a user that is not there: no such directory, as is said below
        path = path.expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BoschError(f"{name_or_path} is not a model: the directory has no config.json")
        return path
    if path.is_file():
        raise BoschError(f"{name_or_path} is a file; give the directory that holds the model's config.json and weights")
    if name_or_path.startswith((".", "/", "~")) or name_or_path.count("/") > 1:
        raise BoschError(f"no such directory: {name_or_path}")
    return name_or_path


def _hub_answers(hub_id: str) -> bool:
    """Whether the hub can be asked; if not, only what was downloaded before is tried.

    One request of our own, because transformers would retry for most of a minute before it says so.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(hub_id, timeout=10)
    except HfHubHTTPError:
        return True
    except Exception:  # whatever the HTTP library of the day raises when there is no network
        return False
    return True


@contextlib.contextmanager
def _loading_errors(source: Path | str) -> Iterator[None]:
    """Says in one sentence what transformers could not load."""
    try:
        yield
    except BoschError:
        raise
    except Exception as error:  # transformers, on files that may hold anything, raises whatever comes of it
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(source, Path):
            raise BoschError(f"cannot load the model in {source}: {reason}") from error
        names = ", ".join(MODELS)
        raise BoschError(
            f"{source!r} is neither a known model ({names}), nor a directory, nor to be had from the hub: {reason}"
        ) from error


def _resolve_device(device: str) -> "torch.device":
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:  # torch asserts if it was built without CUDA
        raise BoschError(f"cannot use device {device!r}: {str(error).splitlines()[0]}") from None


def _resolve_dtype(dtype: str, device: "torch.device") -> "torch.dtype | str":
    import torch

    # transformers' own word for the checkpoint's dtype is "auto".
    known: dict[str, torch.dtype | str] = {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "checkpoint": "auto",
    }
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_has_fast_bfloat16() else torch.float32
    return lookup("dtype", dtype, known)


def _cpu_has_fast_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 matrices in hardware; emulated, they are 8 times slower than float32."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))

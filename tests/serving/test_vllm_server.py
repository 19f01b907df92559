"""The server over HTTP, in processes of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

EXPORT = Path(__file__).parents[2] / ".venv-vllm" / "smollm2-hybrid"  # of `make test-vllm`
START = "import sys, pathlib, bosch.serving; sys.exit(bosch.serving.serve(pathlib.Path(sys.argv[1]), sys.argv[2:]))"
OPTIONS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", "--served-model-name", "hybrid"]
pytestmark = pytest.mark.real_model


def post(port, path, body, stream=False):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return [line.decode() for line in response] if stream else json.load(response)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    environment = {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    environment["VLLM_CPU_KVCACHE_SPACE"] = "1"
    command = [sys.executable, "-c", START, str(EXPORT), *OPTIONS, "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    try:
        for _ in range(600):
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield process, port, log
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_it_answers_and_says_what_fits_and_stops_on_ctrl_c(running):
    process, port, log = running
    greedy = {"model": "hybrid", "temperature": 0, "max_tokens": 8}
    completion = post(port, "completions", {**greedy, "prompt": "The capital of France is"})
    assert "Paris" in completion["choices"][0]["text"]
    chat = {**greedy, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    assert "Paris" in post(port, "chat/completions", chat)["choices"][0]["message"]["content"]
    lines = post(port, "completions", {**greedy, "prompt": "The capital of France is", "stream": True}, stream=True)
    pieces = [json.loads(line[6:])["choices"][0]["text"] for line in lines if line.startswith("data: {")]
    assert "".join(pieces) == completion["choices"][0]["text"]
    assert "times as many fit" in log.read_text()

    second = subprocess.run(
        [sys.executable, "-c", START, str(EXPORT), "--port", str(port)], capture_output=True, text=True
    )
    assert f"cannot listen on port {port}: Address already in use" in second.stderr

    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) in (0, 130, -2)

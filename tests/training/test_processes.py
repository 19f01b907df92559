"""Two processes on CPUs (gloo), through `accelerate launch`, against one at the same total batch.

Stated tolerance: 1e-5 nats on each loss, which the models compute in float32. Gradients are float64 here, and only
the order of their sums differs.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny import SETTINGS, make_examples, tiny_model, train_tiny

from bosch.common.files import read_json
from bosch.errors import BoschError
from bosch.training.heldout import score_examples, summarize
from bosch.training.log import read_log

TESTS = Path(__file__).parents[1]
SHIPPED = TESTS.parent / "configs/accelerate/fsdp2-2x8.yaml"

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def launch(
    kind: str, output: Path, *, num_processes: int = 2, micro_batch: int = 1, kill_after_steps: int = 0
) -> subprocess.CompletedProcess[str]:
    """Train in several processes; with FSDP2 by the shipped configuration, made smaller."""
    # Of MULTI_CPU, accelerate starts a single process; the environment below makes CPU processes of these.
    config = {"distributed_type": "MULTI_GPU", "compute_environment": "LOCAL_MACHINE"}
    if kind == "fsdp2":
        config = yaml.safe_load(SHIPPED.read_text())
    config |= {"num_machines": 1, "num_processes": num_processes, "use_cpu": True, "mixed_precision": "no"}
    config |= {"main_process_port": free_port()}
    file = output.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(config))
    paths = [str(path) for path in (TESTS.parent / "src", TESTS, TESTS / "training")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
    command += [str(TESTS / "training/launched.py"), str(output), str(micro_batch)]
    command += [str(kill_after_steps * SETTINGS["tokens_per_step"])]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def curve(output: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read_log(output / "log.jsonl") if "loss" in line]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output, model, examples = tmp_path_factory.mktemp("alone") / "run", tiny_model(), make_examples()

    def evaluate(_: int) -> dict[str, float]:
        return summarize(score_examples(model, examples), examples)

    train_tiny(output, model, micro_batch=4, on_evaluation=evaluate, eval_every=SETTINGS["tokens_per_step"])
    return output


@pytest.fixture(scope="module", params=["ddp", "fsdp2"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The same training in two processes, undisturbed."""
    output = tmp_path_factory.mktemp(request.param) / "run"
    result = launch(request.param, output)
    assert result.returncode == 0, result.stderr
    return request.param, output


def test_two_processes_have_the_curve_and_the_weights_of_one(alone: Path, two: tuple[str, Path]) -> None:
    kind, output = two
    assert read_json(output / "run.json")["settings"]["num_processes"] == 2
    steps, losses = zip(*curve(output), strict=True)
    expected_steps, expected_losses = zip(*curve(alone), strict=True)
    assert steps == expected_steps == tuple(range(1, 9))
    assert losses == pytest.approx(expected_losses, abs=1e-5)
    last = "checkpoints/step-00000008"
    weights, expected = (load_file(path / last / "model.safetensors") for path in (output, alone))
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-4, msg=name)
    states = sorted(path.name for path in (output / last / "training").glob("*.safetensors"))
    count = 2 if kind == "fsdp2" else 1
    assert states == [f"state-{rank:05d}-of-{count:05d}.safetensors" for rank in range(count)]


def test_two_processes_share_the_examples_and_have_the_scores_of_one(alone: Path, two: tuple[str, Path]) -> None:
    _, output = two
    scores, expected = (
        [line["scores"] for line in read_log(path / "log.jsonl") if "scores" in line] for path in (output, alone)
    )
    assert len(scores) == len(expected) == 9
    for found, one in zip(scores, expected, strict=True):
        assert found == pytest.approx(one, abs=1e-4)
    assert expected[-1]["nll"] < expected[0]["nll"] - 0.5


def test_killed_and_resumed_is_undisturbed(two: tuple[str, Path], tmp_path: Path) -> None:
    """SIGKILL to every process after the fifth of eight steps, the last checkpoint being of the fourth."""
    kind, output = two
    killed = launch(kind, tmp_path / "run", kill_after_steps=5)
    assert killed.returncode != 0
    assert f"Signal {int(signal.SIGKILL)}" in killed.stderr or "SIGKILL" in killed.stderr, killed.stderr
    assert [path.name for path in sorted((tmp_path / "run/checkpoints").iterdir())] == [
        "step-00000002",
        "step-00000004",
    ]
    resumed = launch(kind, tmp_path / "run")
    assert resumed.returncode == 0, resumed.stderr
    assert curve(tmp_path / "run") == curve(output)


def test_another_number_of_processes_is_refused_in_one_sentence(two: tuple[str, Path], tmp_path: Path) -> None:
    _, output = two
    shutil.copytree(output, tmp_path / "run")
    with pytest.raises(BoschError, match=r"another training \(its num_processes is 2, now it is 1\)"):
        train_tiny(tmp_path / "run", micro_batch=1)


def test_an_error_of_one_process_ends_all(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    result = launch("ddp", tmp_path / "run")
    assert result.returncode != 0
    messages = {line for line in result.stderr.splitlines() if line.startswith("bosch: ")}
    assert messages == {
        f"bosch: {tmp_path / 'run'} is a file; expected a directory for the results",
        "bosch: another process of this training has failed; it says why",
    }


def test_the_shipped_configuration_is_that_of_the_paper() -> None:
    config = yaml.safe_load(SHIPPED.read_text())
    assert (config["num_machines"], config["num_processes"]) == (2, 16)
    assert config["fsdp_config"]["fsdp_version"] == 2
    assert config["mixed_precision"] == "bf16"

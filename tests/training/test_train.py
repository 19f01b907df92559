"""Trainings of a few steps, on one process."""

import fcntl
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import SETTINGS, hybrid, make_sequences, tiny_model, train_tiny
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from bosch.errors import BoschError
from bosch.training import checkpoint
from bosch.training.log import read_log
from families import make_model

TOKENS_PER_STEP = SETTINGS["tokens_per_step"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that has come to its end, evaluated at each step. Not to be changed."""
    output = tmp_path_factory.mktemp("finished") / "run"
    train_tiny(output, on_evaluation=kill_at(-1), eval_every=TOKENS_PER_STEP)
    return output


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def losses(output: Path) -> list[float]:
    return [line["loss"] for line in read_log(output / "log.jsonl") if "loss" in line]


def weights(path: Path) -> dict[str, Tensor]:
    return load_file(path / "model.safetensors")


def expected_losses(apart: bool, num_steps: int) -> list[float]:
    """The training written out: all targets of a step at once, AdamW's formula, gradients cut at length 1."""
    model, sequences = tiny_model(), make_sequences(apart)
    order = [int(i) for epoch in range(4) for i in np.random.default_rng([0, epoch]).permutation(17)]
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in model.named_parameters()}
    result = []
    with hybrid(model):
        for step in range(num_steps):
            batch = sequences.batch(order[4 * step : 4 * step + 4])
            targets = batch.pop("labels")[:, 1:]
            logits = model(**batch, use_cache=False).logits[:, :-1].float()
            loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
            model.zero_grad()
            loss.backward()
            result.append(float(loss.detach()))
            norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
            # One of eight steps rises, then half a cosine over seven.
            rate = 1e-2 if step == 0 else 0.5e-2 * (1 + math.cos(math.pi * (step - 1) / 7))
            with torch.no_grad():
                for name, p in model.named_parameters():
                    gradient, (first, second) = p.grad / max(norm, 1.0), moments[name]
                    first.lerp_(gradient, 0.1)
                    second.lerp_(gradient.square(), 0.001)
                    decay = 0.01 if p.ndim > 1 else 0.0
                    direction = first / (1 - 0.9 ** (step + 1)) / ((second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
                    p.copy_(p * (1 - rate * decay) - rate * direction)
    return result


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_the_loss_curve_is_that_of_the_formulas(tmp_path: Path, micro_batch: int, apart: bool) -> None:
    """However a step's sequences are divided, every target weighs the same, also where sequences have fewer of them."""
    train_tiny(tmp_path / "run", apart=apart, micro_batch=micro_batch)
    found = losses(tmp_path / "run")
    assert found == pytest.approx(expected_losses(apart, 8), abs=2e-5)
    assert found[-1] < found[0] - 1


def test_a_checkpoint_is_an_ordinary_export_of_the_trained_weights(tmp_path: Path) -> None:
    model = tiny_model()
    path = train_tiny(tmp_path / "run", model, on_evaluation=lambda tokens: {})
    assert path == tmp_path / "run/checkpoints/step-00000008"
    loaded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight, rtol=0, atol=0)
    assert loaded.config.use_cache
    assert not model.training


def test_only_the_last_checkpoints_stay(tmp_path: Path) -> None:
    train_tiny(tmp_path / "run", save_every=TOKENS_PER_STEP, keep_last=3)
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names == ["step-00000006", "step-00000007", "step-00000008"]


def test_nothing_in_a_checkpoint_can_run_code(tmp_path: Path) -> None:
    path = train_tiny(tmp_path / "run")
    assert {file.suffix for file in path.rglob("*") if file.is_file()} == {".json", ".safetensors"}


def test_evaluations_come_at_their_token_counts_and_at_both_ends(tmp_path: Path) -> None:
    model, seen = tiny_model(), []

    def evaluate(tokens: int) -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        seen.append(tokens)
        return {"niah": tokens / 2}

    train_tiny(tmp_path / "run", model, eval_every=int(2.5 * TOKENS_PER_STEP), on_evaluation=evaluate)
    assert seen == [TOKENS_PER_STEP * step for step in (0, 3, 5, 8)]
    lines = [line for line in read_log(tmp_path / "run/log.jsonl") if "scores" in line]
    assert [(line["step"], line["tokens"], line["scores"]["niah"]) for line in lines] == [
        (tokens // TOKENS_PER_STEP, tokens, tokens / 2) for tokens in seen
    ]


class KilledError(Exception):
    pass


def kill_at(step: int) -> Callable[[int], dict[str, float]]:
    def evaluate(tokens: int) -> dict[str, float]:
        if tokens == step * TOKENS_PER_STEP:
            raise KilledError
        return {"niah": tokens / 2}

    return evaluate


@pytest.mark.parametrize("step", [0, 1, 5])
def test_killed_and_resumed_is_undisturbed(finished: Path, tmp_path: Path, step: int) -> None:
    """At the beginning, before the first checkpoint, and between two, in the second epoch: the same curve and the same
    weights, bit for bit."""
    with pytest.raises(KilledError):
        train_tiny(tmp_path, on_evaluation=kill_at(step), eval_every=TOKENS_PER_STEP)
    resumed = train_tiny(tmp_path, on_evaluation=kill_at(-1), eval_every=TOKENS_PER_STEP)
    logs = [read_log(output / "log.jsonl") for output in (finished, tmp_path)]
    for line in logs[0] + logs[1]:
        line.pop("tokens_per_second", None)
    assert logs[0] == logs[1]
    expected = weights(finished / "checkpoints" / resumed.name)
    for name, weight in weights(resumed).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=0)


def test_dropout_too_is_the_same_after_a_resumption(tmp_path: Path) -> None:
    def model():
        return make_model("gpt_neox", torch.float64, hidden_dropout=0.3)

    train_tiny(tmp_path / "whole", model(), tokens=4 * TOKENS_PER_STEP)
    options = {"tokens": 4 * TOKENS_PER_STEP, "eval_every": TOKENS_PER_STEP}
    with pytest.raises(KilledError):
        train_tiny(tmp_path / "killed", model(), on_evaluation=kill_at(3), **options)
    torch.rand(7)
    train_tiny(tmp_path / "killed", model(), **options)
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_a_finished_training_is_left_as_it_is(copied: Path) -> None:
    before = {file: file.read_bytes() for file in copied.rglob("*") if file.is_file()}
    assert train_tiny(copied) == copied / "checkpoints/step-00000008"
    assert {file: file.read_bytes() for file in copied.rglob("*") if file.is_file()} == before


def test_half_precision_weights_are_trained_in_float32(tmp_path: Path) -> None:
    """A step of 1e-5 would be lost in bfloat16 weights."""
    model = tiny_model(torch.bfloat16)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    path = train_tiny(tmp_path, model, learning_rate=1e-5, precision="bfloat16", tokens=2 * TOKENS_PER_STEP)
    for name, weight in weights(path).items():
        assert weight.dtype == torch.float32
        assert 0 < (weight - before[name].float()).abs().max() < 1e-4
    with torch.no_grad():
        assert model(torch.tensor([[1, 2]])).logits.dtype == torch.float32  # its forward is its own again


def test_gradient_checkpointing_gives_the_same_curve(finished: Path, tmp_path: Path) -> None:
    train_tiny(tmp_path, gradient_checkpointing=True)
    assert losses(tmp_path) == pytest.approx(losses(finished), abs=1e-6)


def nan_from(step: int) -> Callable[..., Tensor]:
    """A loss that is no number from some step on; a step takes two micro-batches."""
    calls = []

    def loss(model, batch) -> Tensor:
        calls.append(1)
        value = model(**batch, use_cache=False).loss
        return value * float("nan") if len(calls) > 2 * step else value

    return loss


def test_a_loss_that_is_no_number_stops_the_training_at_the_last_good_checkpoint(
    finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        BoschError, match=r"loss was nan .* in step 4; expected finite .* last good checkpoint is .*step-00000002"
    ):
        train_tiny(tmp_path / "run", loss=nan_from(3))
    state = load_file(tmp_path / "run/checkpoints/step-00000002/training/state-00000-of-00001.safetensors")
    assert all(tensor.isfinite().all() for tensor in state.values())
    train_tiny(tmp_path / "run")
    assert losses(tmp_path / "run") == losses(finished)


def test_a_gradient_that_is_no_number_never_reaches_the_weights(tmp_path: Path) -> None:
    """sqrt has a finite value and no finite gradient at 0."""

    def loss(model, batch) -> Tensor:
        value = model(**batch, use_cache=False).loss
        return value + (value - value).sqrt()

    with pytest.raises(BoschError, match=r"its gradient's norm nan in step 1; .* last good checkpoint is none yet"):
        train_tiny(tmp_path / "run", loss=loss)
    assert list((tmp_path / "run/checkpoints").iterdir()) == []


def full_disk(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("place", ["export", "state"])
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KilledError):
        train_tiny(tmp_path / "run", on_evaluation=kill_at(3), eval_every=TOKENS_PER_STEP)
    before = sorted((tmp_path / "run/checkpoints").rglob("*"))
    options: dict[str, Any] = {}
    if place == "export":
        options["save"] = full_disk
    else:
        monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(
        BoschError,
        match=r"cannot write the checkpoint .*step-00000004: .*No space left.*the last one is .*step-00000002",
    ):
        train_tiny(tmp_path / "run", **options)
    assert sorted((tmp_path / "run/checkpoints").rglob("*")) == before


def test_half_written_checkpoints_are_no_checkpoints(copied: Path) -> None:
    folder = copied / "checkpoints"
    (folder / "step-00000008").rename(folder / ".step-00000009")
    (folder / "step-9.old").mkdir()
    assert train_tiny(copied).name == "step-00000008"
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000006", "step-00000008", "step-9.old"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def of_another_model(file: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight/other": torch.zeros(3)}, file)


def pickled(file: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, file)


@pytest.mark.parametrize("damage", [cut, of_another_model, pickled])
def test_a_damaged_checkpoint_is_named(copied: Path, damage: Callable[[Path], None]) -> None:
    damage(copied / "checkpoints/step-00000008/training/state-00000-of-00001.safetensors")
    with pytest.raises(BoschError, match=r"step-00000008 is no checkpoint of this training: "):
        train_tiny(copied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 1e-3}, r"its learning_rate is 0\.01, now it is 0\.001"),
        ({"tokens": 5 * TOKENS_PER_STEP}, "its tokens is 768, now it is 480"),
        ({"apart": False}, "its packed_apart is True, now it is False"),
        ({"subject": {"text": "another"}}, "its text is 'counting', now it is 'another'"),
    ],
)
def test_another_training_is_refused(copied: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BoschError, match=rf"run holds another training \({message}\)"):
        train_tiny(copied, **change)
    assert (copied / "checkpoints/step-00000008").is_dir()


def test_another_training_can_be_replaced(copied: Path) -> None:
    (copied / "notes.txt").write_text("mine")
    path = train_tiny(copied, tokens=TOKENS_PER_STEP, overwrite=True)
    assert [one.name for one in path.parent.iterdir()] == ["step-00000001"]
    assert len(losses(copied)) == 1
    assert (copied / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("change", [{}, {"tokens": TOKENS_PER_STEP, "overwrite": True}])
def test_a_training_that_runs_is_neither_joined_nor_replaced(copied: Path, change: dict[str, Any]) -> None:
    half_written = copied / "checkpoints/.step-00000009"
    half_written.mkdir()
    with open(copied / ".lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BoschError, match="run is in use by another running command; expected one at a time"):
            train_tiny(copied, **change)
    assert half_written.is_dir()
    assert (copied / "checkpoints/step-00000008").is_dir()
    train_tiny(copied, **change)
    assert not half_written.exists()


def test_what_changes_nothing_of_the_result_may_change(copied: Path) -> None:
    shutil.rmtree(copied / "checkpoints/step-00000008")
    train_tiny(copied, save_every=None, keep_last=1)


def test_a_changed_number_of_processes_is_refused(copied: Path) -> None:
    file = copied / "run.json"
    data = json.loads(file.read_text())
    data["settings"]["num_processes"] = 16
    file.write_text(json.dumps(data))
    with pytest.raises(BoschError, match=r"its num_processes is 16, now it is 1\)"):
        train_tiny(copied)


def test_a_training_of_an_earlier_version_is_known(copied: Path) -> None:
    """Its settings lay in `training.json`, some under other names."""
    earlier = {"num_processes": "number of processes", "packed_length": "sequence length"}
    earlier["packed_apart"] = "documents apart"
    settings = json.loads((copied / "run.json").read_text())["settings"]
    run = {earlier.get(name, name): value for name, value in settings.items()}
    (copied / "training.json").write_text(json.dumps({"schema": "bosch.training/1", "run": run, "provenance": {}}))
    (copied / "run.json").unlink()
    (copied / ".lock").unlink()
    log = (copied / "log.jsonl").read_bytes()
    with pytest.raises(BoschError, match=r"run holds another training \(its packed_apart is True, now it is False\)"):
        train_tiny(copied, apart=False)
    assert train_tiny(copied) == copied / "checkpoints/step-00000008"
    assert (copied / "log.jsonl").read_bytes() == log
    train_tiny(copied, tokens=TOKENS_PER_STEP, overwrite=True)
    assert not (copied / "training.json").exists()
    assert json.loads((copied / "run.json").read_text())["schema"] == "bosch.training/2"


def test_a_directory_of_something_else_is_never_taken(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(BoschError, match="is not empty and holds no training"):
        train_tiny(tmp_path, overwrite=True)
    assert (tmp_path / "letters.txt").read_text() == "mine"
    with pytest.raises(BoschError, match="is a file; expected a directory for the results"):
        train_tiny(tmp_path / "letters.txt")


def test_a_training_without_a_step_gives_way(tmp_path: Path) -> None:
    with pytest.raises(BoschError, match="norm"):
        train_tiny(tmp_path / "run", loss=nan_from(0))
    train_tiny(tmp_path / "run", learning_rate=1e-3, tokens=TOKENS_PER_STEP)


def test_sequences_longer_than_the_model_takes(tmp_path: Path) -> None:
    with pytest.raises(BoschError, match="sequences of 24 tokens are too long for the model, which takes 23"):
        train_tiny(tmp_path / "run", tiny_model(max_position_embeddings=23))
    assert not (tmp_path / "run").exists()


def test_text_that_was_tokenized_for_another_model(tmp_path: Path) -> None:
    with pytest.raises(BoschError, match=r"the text has the token 7., but the model has 50 embeddings"):
        train_tiny(tmp_path / "run", tiny_model(vocab_size=50))


def test_a_model_whose_documents_see_each_other_is_refused(tmp_path: Path) -> None:
    """As where it makes itself a cache, whatever it is told."""
    model = tiny_model()
    forward = model.forward
    model.forward = lambda *args, position_ids=None, **options: forward(*args, **options)
    with pytest.raises(BoschError, match="does not keep the documents of a packed sequence apart"):
        train_tiny(tmp_path / "run", model)


def test_attention_dropout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BoschError, match=r"attention dropout is 0\.1, expected 0"):
        train_tiny(tmp_path / "run", tiny_model(attention_dropout=0.1))


def test_trackers(tmp_path: Path) -> None:
    with pytest.raises(BoschError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        train_tiny(tmp_path / "run", trackers=("tensorbord",))
    with pytest.raises(BoschError, match="the tracker comet_ml is not installed"):
        train_tiny(tmp_path / "run", trackers=("comet_ml",))
    pytest.importorskip("tensorboard")
    train_tiny(tmp_path / "run", trackers=("tensorboard",), tokens=TOKENS_PER_STEP)
    assert list((tmp_path / "run/trackers").rglob("events.out.tfevents.*"))


def test_a_log_that_a_kill_has_cut_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "tokens": 96, "loss": 1.5}\n{"step": 2, "tok')
    assert read_log(path) == [{"step": 1, "tokens": 96, "loss": 1.5}]
    for content in ("[1]\n", "{}\n", '{"step": true, "tokens": 1}\n', "no\n"):
        path.write_text(content)
        with pytest.raises(BoschError, match=re.escape(f"{path}: not the log of a training")):
            read_log(path)

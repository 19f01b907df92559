"""`bosch train` and `bosch analyze curves`, from the command line to their files, on the tiny trained model."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from bosch.calibration.haystack import shipped_prose
from bosch.cli import main
from bosch.common.files import read_json
from bosch.training.log import read_log

OPTIONS = {
    "--tokens": "1500",
    "--tokens-per-step": "512",
    "--sequence-length": "256",
    "--tasks": "niah_single_1",
    "--lengths": "128",
    "--heldout": "3",
    "--eval-every": "1000",
    "--learning-rate": "1e-4",
    "--precision": "float32",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOSCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def books(tmp_path: Path) -> Path:
    (tmp_path / "books").mkdir()
    for number in range(8):
        (tmp_path / f"books/{number}.txt").write_text(shipped_prose()[number * 800 : (number + 1) * 800])
    return tmp_path / "books"


def train(target: Path, output: Path, *flags: str, texts: str = "needles", **changes: str) -> int:
    options = OPTIONS | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    pairs = [word for option in options.items() for word in option]
    return main(["train", str(target), "--texts", texts, *pairs, *flags, "--output", str(output)])


def scores(output: Path) -> list[tuple[int, dict[str, float]]]:
    return [(line["tokens"], line["scores"]) for line in read_log(output / "log.jsonl") if "scores" in line]


def losses(output: Path) -> list[float]:
    return [line["loss"] for line in read_log(output / "log.jsonl") if "loss" in line]


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(max((output / "checkpoints").iterdir()) / "model.safetensors")


def test_a_training_leaves_scores_a_log_and_an_export(tiny_export, books, tmp_path, capsys) -> None:
    output = tmp_path / "run"
    assert train(tiny_export, output, texts=f"{books},needles", weights="1,3") == 0
    checkpoint = output / "checkpoints/step-00000003"
    assert capsys.readouterr().out == f"log: {output / 'log.jsonl'}\ncheckpoint: {checkpoint}\n"
    assert [tokens for tokens, _ in scores(output)] == [0, 1024, 1536]
    first = scores(output)[0][1]
    assert first["original accuracy"] == 1  # the tiny model answers these
    assert first["original nll"] < 0.2 < first["nll"]
    loaded = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert type(loaded).__name__ == "BoschQwen3ForCausalLM"
    (corpus,) = (tmp_path / "cache/corpora").glob("*/corpus.json")
    prose, needles = read_json(corpus)["tokens_per_source"]
    assert needles > 2 * prose
    log = (output / "log.jsonl").read_text()
    assert train(tiny_export, output, texts=f"{books},needles", weights="1,3") == 0
    assert (output / "log.jsonl").read_text() == log


@pytest.mark.slow
def test_training_recovers_what_the_hybrid_lost(tiny_export, tmp_path) -> None:
    """The answers of needle documents, whose keys and values no held-out example has."""
    flags = ["--documents-apart", "--answers-only"]
    options = {"tokens": "40000", "tokens_per_step": "2048", "micro_batch": "4", "learning_rate": "1e-3"}
    assert train(tiny_export, tmp_path / "run", *flags, **options, heldout="16", eval_every="40000") == 0
    before, after = (values for _, values in scores(tmp_path / "run"))
    assert after["nll"] < before["nll"] - 0.3
    assert after["accuracy"] >= before["accuracy"]


def test_adapters_leave_ordinary_exports_and_resume_exactly(tiny_export, tmp_path) -> None:
    pytest.importorskip("peft")
    changes = {"lora_rank": "2", "tokens": "768", "tokens_per_step": "256", "save_every": "256"}
    changes["learning_rate"] = "1e-2"
    for name in ("whole", "stopped"):
        assert train(tiny_export, tmp_path / name, **changes) == 0
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000003")
    assert train(tiny_export, tmp_path / "stopped", **changes) == 0
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    whole, stopped, before = (
        weights(tmp_path / "whole"), weights(tmp_path / "stopped"), load_file(tiny_export / "model.safetensors")
    )  # fmt: skip
    assert whole.keys() == before.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(stopped[name], weight, rtol=0, atol=0)
        change = weight - before[name]
        if change.ndim == 2 and "embed" not in name:
            assert torch.linalg.matrix_rank(change.double(), rtol=1e-4) == 2, name
        else:
            assert not change.any(), name
    state = load_file(tmp_path / "whole/checkpoints/step-00000003/training/state-00000-of-00001.safetensors")
    assert all(".lora_" in name for name in state)


def test_distillation_brings_the_hybrid_nearer_to_its_original(tiny_export, tiny_path, tmp_path) -> None:
    changes = {"tokens": "4096", "tokens_per_step": "512", "learning_rate": "1e-3", "eval_every": "4096"}
    assert train(tiny_export, tmp_path / "run", "--distill", **changes) == 0
    found = losses(tmp_path / "run")
    assert min(found) > 0
    assert sum(found[-2:]) < 0.8 * sum(found[:2])


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_length": "2048", "tokens_per_step": "2048"}, "sequences of 2048 tokens are too long for the model"),
        ({"tokens_per_step": "500"}, "tokens_per_step must be a multiple of 256 tokens x 1 sequences x 1 processes"),
        ({"texts": "nothing.jsonl"}, "no such file or directory: nothing.jsonl"),
        ({"weights": "1,2"}, r"weights must be as many as there are sources \(1\)"),
        ({"lengths": "128,256"}, "sequences of 256 tokens cut every needle document of 256 tokens and an end"),
        ({"lengths": "20"}, "length 20 is too short for niah_single_1"),
        ({"haystack": "nowhere.txt"}, "cannot read the haystack nowhere.txt"),
        ({"needle_haystack": "nowhere.txt"}, "cannot read the haystack nowhere.txt"),
        ({"tasks": "niah_singel_1"}, "unknown task 'niah_singel_1'; did you mean 'niah_single_1'"),
        ({"lora_rank": "0"}, "lora_rank must be an integer of at least 1, got 0"),
        ({"eval_every": "0"}, "eval_every must be an integer of at least 1, got 0"),
    ],
)
def test_mistakes_are_one_sentence(tiny_export, tmp_path, changes, message, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(tiny_export, Path("run"), **changes) == 2
    assert re.search(message, error_of(capsys))
    assert not Path("run").exists()


def test_an_empty_corpus(tiny_export, tmp_path, capsys) -> None:
    (tmp_path / "empty.txt").touch()
    assert train(tiny_export, tmp_path / "run", texts=str(tmp_path / "empty.txt")) == 2
    assert "there is no text in" in error_of(capsys)
    (tmp_path / "short.txt").write_text("A short text.")
    assert train(tiny_export, tmp_path / "run", texts=str(tmp_path / "short.txt")) == 2
    assert "tokens, not one sequence of 256; give more text or shorter sequences" in error_of(capsys)


def test_another_text_is_another_training(tiny_export, books, tmp_path, capsys) -> None:
    changes = {"texts": str(books), "tokens": "512"}
    assert train(tiny_export, tmp_path / "run", **changes) == 0
    (books / "7.txt").write_text(shipped_prose()[8000:9000])
    capsys.readouterr()
    assert train(tiny_export, tmp_path / "run", **changes) == 2
    assert re.search("holds another training .*its corpus is", error_of(capsys))
    assert train(tiny_export, tmp_path / "run", "--overwrite", **changes) == 0


def training(path: Path, accuracies: list[float], examples: str = "abc", earlier: bool = False) -> Path:
    """What `bosch train` leaves, or an earlier version of it left, written by hand."""
    path.mkdir()
    if earlier:
        run = {"schema": "bosch.training/1", "run": {"held-out examples": examples}, "provenance": {}}
    else:
        run = {"schema": "bosch.training/2", "settings": {"heldout_examples": examples}, "provenance": {}}
    (path / ("training.json" if earlier else "run.json")).write_text(json.dumps(run))
    lines = []
    for number, accuracy in enumerate(accuracies):
        found = {"accuracy": accuracy, "nll": 2 - accuracy}
        original = {"original accuracy": 0.9, "original nll": 0.25} if number == 0 else {}
        lines.append({"step": number, "tokens": 1000 * number, "scores": found | original})
        lines.append({"step": number + 1, "tokens": 1000 * number + 1000, "loss": 1.0})
    (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_curves(tmp_path, capsys) -> None:
    one, other = training(tmp_path / "bosch", [0.25, 0.5, 0.75]), training(tmp_path / "intr", [0, 0.5], earlier=True)
    assert main(["analyze", "curves", str(one), str(other), "--output", str(tmp_path / "curves")]) == 0
    with (tmp_path / "curves/curves.csv").open() as file:
        rows = [(row["training"], int(row["tokens"]), float(row["accuracy"])) for row in csv.DictReader(file)]
    assert rows == [
        ("bosch", 0, 0.25),
        ("bosch", 1000, 0.5),
        ("bosch", 2000, 0.75),
        ("intr", 0, 0),
        ("intr", 1000, 0.5),
        ("bosch: original", 0, 0.9),
        ("intr: original", 0, 0.9),
    ]
    table = capsys.readouterr().out
    assert re.search(r"\| bosch +\| +2,000 \| +0\.25 \| +0\.75 \| +0\.90 \| +1\.750 \| +1\.250 \| +0\.250 \|", table)
    assert (tmp_path / "curves/curves.png").read_bytes() == b"drawn"
    assert main(["analyze", "curves", str(one), "--output", str(tmp_path / "curves")]) == 2
    error = capsys.readouterr().err
    assert "curves holds another analysis (its rows is [['bosch', 0, 0.25, 1.75]," in error
    assert error.endswith("); choose another directory or --overwrite\n")
    assert len(error) < 600 + len(str(tmp_path))


def test_curves_that_do_not_compare(tmp_path, capsys) -> None:
    one = training(tmp_path / "one", [0, 1])
    for trainings, message in (
        ((one, training(tmp_path / "two", [0, 1], "other")), "other held-out examples than"),
        ((one, training(tmp_path / "three", [])), "is no training with evaluations"),
        ((tmp_path / "four",), "four is no directory; expected that of a training"),
        ((tmp_path,), "is not empty and holds no training"),
        ((one, one), "two trainings have one name"),
    ):
        names = map(str, trainings)
        assert main(["analyze", "curves", *names, "--output", str(tmp_path / "curves")]) == 2
        assert message in error_of(capsys)

"""The child: its models, its replies, and the whole command with true children."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from bosch.bench.rows import BenchDirectory
from bosch.bench.settings import BenchSettings
from bosch.bench.worker import Job, describe, open_model, work
from bosch.cli import main
from bosch.common.files import read_json
from bosch.deploy import hybridize
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from families import make_config, make_model

LAYOUT = HeadLayout((2, 2, 2))
MASK = HeadMask(LAYOUT, ((True, False), (False, False), (True, True)), window=11)


@pytest.fixture
def config_path(tmp_path):
    """A directory with a config, and nothing else."""
    make_config("qwen3", max_position_embeddings=53).save_pretrained(tmp_path / "config")
    return tmp_path / "config"


def settings(path, **changes) -> BenchSettings:
    given = {"random_weights": True, "contexts": (29,), "ratios": (0.5,), "chunk": 7, "new_tokens": 5}
    return BenchSettings(model=str(path), dtype="float32", device="cpu", **{**given, **changes})


def test_a_config_is_enough_for_random_weights(config_path):
    model = open_model(settings(config_path))
    assert not model.training
    assert model.dtype == torch.float32
    again, other = (open_model(settings(config_path, seed=seed)).state_dict() for seed in (0, 1))
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    assert not torch.equal(model.lm_head.weight, other["lm_head.weight"])


@pytest.mark.parametrize(("context", "positions"), [(29, 53), (45, 53), (46, 54), (1009, 1017)])
def test_random_weights_get_the_positions_that_the_longest_sequence_needs(config_path, context, positions):
    model = open_model(settings(config_path, contexts=(context, 2)))
    assert model.config.max_position_embeddings == positions


def test_learned_positions_grow_as_well(tmp_path):
    from transformers import GPT2Config

    GPT2Config(vocab_size=97, n_positions=53, n_embd=24, n_layer=1, n_head=3).save_pretrained(tmp_path)
    assert open_model(settings(tmp_path, contexts=(101,))).transformer.wpe.weight.shape == (109, 24)


def test_own_weights_have_the_positions_that_they_have(tmp_path, tiny_tokenizer):
    model = make_model("qwen3", max_position_embeddings=53)
    model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    found = open_model(settings(tmp_path, random_weights=False, contexts=(45,)))
    assert torch.equal(found.lm_head.weight, model.lm_head.weight)
    message = r"a context of 46 tokens and those decoded after it need 54 positions, but .* has 53; choose shorter"
    with pytest.raises(BoschError, match=message):
        open_model(settings(tmp_path, random_weights=False, contexts=(46, 7)))


def test_no_model_is_one_sentence(tmp_path):
    with pytest.raises(BoschError, match=r"no such directory: \./nowhere"):
        open_model(settings("./nowhere"))
    with pytest.raises(BoschError, match=r"has no config\.json"):
        open_model(settings(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "no such type"}')
    with pytest.raises(BoschError, match="cannot load the model in"):
        open_model(settings(tmp_path))


def test_a_hybrid_is_no_original(tmp_path):
    hybridize(make_model("qwen3"), MASK).save_pretrained(tmp_path)
    with pytest.raises(BoschError, match="is a hybrid already; expected the original model"):
        open_model(settings(tmp_path))


def test_a_model_is_described_as_the_original():
    model = make_model("gemma2")
    found = describe(model)
    assert found["units_per_layer"] == [0, 2, 0, 2]
    assert found["class"] == "Gemma2ForCausalLM"
    assert found["parameters"] == sum(value.numel() for value in model.state_dict().values())
    assert found["attention"] == "eager"
    assert (found["dtype"], found["device"]) == ("float32", "cpu")


def test_a_job_survives_as_text():
    for mask in (None, MASK):
        job = Job(settings("m", windows=(3, 5)), (2, 29), mask)
        assert Job.from_text(job.to_text()) == job


def test_replies_are_the_model_and_a_measurement_a_context(config_path):
    for mask, cache_bytes in ((None, [6 * 13, 6 * 29]), (MASK, [3 * 13 + 3 * 11, 3 * 29 + 3 * 11])):
        first, *others = work(Job(settings(config_path), (13, 29), mask))
        assert first["model"]["units_per_layer"] == [2, 2, 2]
        assert first["model"]["attention"] == "sdpa"
        assert [reply["measurement"]["context"] for reply in others] == [13, 29]
        assert [reply["measurement"]["cache_bytes"] / (2 * 8 * 4) for reply in others] == cache_bytes


@pytest.mark.slow
def test_a_child_says_what_the_user_can_mend(tmp_path):
    job = Job(settings(tmp_path / "nowhere"), (13,), None)
    command = [sys.executable, "-P", "-m", "bosch.bench.worker"]
    found = subprocess.run(command, input=job.to_text(), capture_output=True, text=True, check=True)
    (line,) = found.stdout.splitlines()
    assert json.loads(line) == {"error": f"no such directory: {tmp_path / 'nowhere'}"}


@pytest.mark.slow
def test_the_whole_command_measures_a_config(config_path, tmp_path, capfd):
    directory = BenchDirectory(tmp_path / "out")
    options = ["--random-weights", "--ratios", "0.5", "--window", "11", "--contexts", "61,13", "--new-tokens", "2"]
    options += ["--chunk", "17", "--device", "cpu", "--dtype", "float32", "--output", str(directory.path)]
    assert main(["bench", "--model", str(config_path), *options]) == 0
    rows = read_json(directory.rows)["rows"]
    assert [(row["name"], row["context"]) for row in rows] == [
        ("original", 13),
        ("original", 61),
        ("0.5 sliding, W = 11", 13),
        ("0.5 sliding, W = 11", 61),
    ]
    parameters = AutoModelForCausalLM.from_config(make_config("qwen3")).num_parameters()
    for row in rows:
        slots = 6 * row["context"] if row["name"] == "original" else 3 * row["context"] + 3 * 11
        assert row["cache_bytes"] == slots * 2 * 8 * 4
        assert row["peak_memory_bytes"] > 4 * parameters
        assert min(row["prefill_tokens_per_s"], row["decode_tokens_per_s"]) > 0
    assert rows[3]["to_original"]["cache_bytes"] == pytest.approx((3 * 61 + 3 * 11) / (6 * 61))
    captured = capfd.readouterr()
    assert captured.err == ""
    assert f"report: {directory.report}" in captured.out

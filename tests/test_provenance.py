import json
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import torch

import bosch
from bosch.common import provenance as module
from bosch.common.provenance import model_hash, provenance

SAME_MODEL = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from bosch.common.provenance import model_hash
torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, initializer_range=0.5, eos_token_id=None)
print(model_hash(LlamaForCausalLM(config).eval()))
"""


def test_provenance_is_plain_json_with_versions_and_time():
    data = provenance()
    assert json.loads(json.dumps(data)) == data
    assert data["bosch"] == bosch.__version__
    assert data["torch"] == torch.__version__
    assert data["num_threads"] == torch.get_num_threads()
    assert abs((datetime.now(UTC) - datetime.fromisoformat(data["time"])).total_seconds()) < 60
    assert data["git_commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", data["git_commit"])


def test_no_commit_outside_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "lib" / "bosch" / "provenance.py"))
    assert provenance()["git_commit"] is None


def test_no_commit_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance()["git_commit"] is None


@pytest.mark.slow
def test_hash_is_the_same_in_another_process(tiny_llama):
    result = subprocess.run([sys.executable, "-c", SAME_MODEL], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == model_hash(tiny_llama)


def test_hash_survives_saving_and_moving(tiny_llama, tmp_path):
    tiny_llama.save_pretrained(tmp_path / "somewhere else")
    again = type(tiny_llama).from_pretrained(tmp_path / "somewhere else")
    assert model_hash(again) == model_hash(tiny_llama)


def _change_one_weight(model):
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[31, 47] += 1e-3


def _swap_two_equal_shapes(model):
    attention = model.model.layers[0].self_attn
    attention.k_proj, attention.v_proj = attention.v_proj, attention.k_proj


def _change_config(model):
    model.config.rms_norm_eps = 1e-5


@pytest.mark.parametrize(
    "change", [_change_one_weight, _swap_two_equal_shapes, _change_config, lambda model: model.to(torch.bfloat16)]
)
def test_hash_tells_models_apart(tiny_llama, change):
    before = model_hash(tiny_llama)
    change(tiny_llama)
    assert model_hash(tiny_llama) != before


def test_large_tensors_are_sampled_at_a_fixed_stride(tiny_llama, monkeypatch):
    monkeypatch.setattr(module, "HASHED_VALUES_PER_TENSOR", 700)
    weight = tiny_llama.model.layers[0].mlp.up_proj.weight  # 48 x 32 = 1536 values: every third is read
    before = model_hash(tiny_llama)
    with torch.no_grad():
        weight[0, 1] += 1
    assert model_hash(tiny_llama) == before
    with torch.no_grad():
        weight[0, 3] += 1
    assert model_hash(tiny_llama) != before

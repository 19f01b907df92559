"""Adapters and their merging, against peft's own."""

import copy

import pytest
import torch

from bosch.training.adapters import add_adapters, merge_adapters
from families import make_model

peft = pytest.importorskip("peft")


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_merged_weights_are_those_that_peft_merges(family: str) -> None:
    model = make_model(family, torch.float64)
    plain = copy.deepcopy(model)
    ids = torch.arange(1, 12)[None]
    before = model(ids).logits
    add_adapters(model, rank=3, seed=0)
    torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=1e-12)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(len(name)))
    expected = model(ids).logits
    assert (expected - before).abs().max() > 0.1
    merged = merge_adapters(model.state_dict())
    plain.load_state_dict(merged)
    torch.testing.assert_close(plain(ids).logits, expected, rtol=0, atol=1e-10)
    for module in list(model.modules()):
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.merge()
    for name, weight in model.state_dict().items():
        if name.endswith("base_layer.weight"):
            torch.testing.assert_close(merged[name.replace("base_layer.", "")], weight, rtol=0, atol=1e-12)


def test_adapters_alone_are_trained_and_the_output_head_has_none() -> None:
    model = make_model("llama")
    add_adapters(model, rank=3, seed=0)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    # 3 layers, 7 projections each, 2 matrices for each
    assert len(trained) == 3 * 7 * 2
    assert all(".lora_" in name for name in trained)
    assert not any("lm_head" in name for name in trained)


def test_adapters_are_a_function_of_their_seed() -> None:
    states = []
    for seed in (0, 0, 1):
        model = make_model("llama")
        torch.rand(7)
        add_adapters(model, rank=2, seed=seed)
        states.append(model.model.layers[0].mlp.up_proj.lora_A.default.weight)
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
    assert not torch.equal(states[0], states[2])


def test_weights_without_adapters_stay_as_they_are() -> None:
    weights = make_model("llama").state_dict()
    assert merge_adapters(weights).keys() == weights.keys()

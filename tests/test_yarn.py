"""More positions by YaRN: what transformers computes for the config that its documentation asks for."""

import math

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, BloomConfig, Qwen3Config, Qwen3ForCausalLM

from bosch.cli import main
from bosch.common.files import read_json
from bosch.deploy import hybridize, mask_of
from bosch.deploy.forward import forward
from bosch.deploy.recipe import open_target, read_target
from bosch.errors import BoschError
from bosch.evaluation.settings import EvalSettings
from bosch.models import load_model
from bosch.models.positions import extend_positions
from evaluation.conftest import MASK
from families import FAMILIES, make_config
from tiny_checkpoint import TINY

FLAT = sorted(FAMILIES.keys() - {"gemma3", "gpt_oss"})


def frequencies(base: float, dim: int, factor: float, positions: int) -> torch.Tensor:
    """The paper's formulas (2309.00071, 3.2 and A.1), a frequency at a time: alpha = 1, beta = 32, whole dimensions."""

    def dimension(rotations: float) -> float:
        return dim * math.log(positions / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), dim - 1)
    found = []
    for index in range(dim // 2):
        frequency = base ** (-2 * index / dim)
        ramp = min(max((index - low) / (high - low), 0.0), 1.0)
        found.append(frequency / factor * ramp + frequency * (1 - ramp))
    return torch.tensor(found)


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_frequencies_and_scale_are_those_of_transformers_and_of_the_paper(factor):
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu", yarn=factor)
    own = Qwen3Config.from_pretrained(TINY)
    own.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": factor,
        "original_max_position_embeddings": 1024,
    }
    own.max_position_embeddings = int(1024 * factor)
    stock = Qwen3ForCausalLM(own).model.rotary_emb
    found = model.model.rotary_emb
    assert torch.equal(found.inv_freq, stock.inv_freq)
    assert found.attention_scaling == stock.attention_scaling
    torch.testing.assert_close(found.inv_freq, frequencies(10000.0, 16, factor, 1024))
    assert found.attention_scaling == pytest.approx(0.1 * math.log(factor) + 1)
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 1024 * factor
    assert not torch.equal(found.inv_freq, load_model(str(TINY))[0].model.rotary_emb.inv_freq)


@pytest.mark.parametrize("family", FLAT)
def test_every_family_with_one_rotary_embedding(family):
    config = make_config(family)
    before = dict(config.rope_parameters)
    extend_positions(config, 2.0)
    expected = {**before, "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}
    assert config.rope_parameters == expected
    assert config.max_position_embeddings == 512
    AutoModelForCausalLM.from_config(config)


def test_layers_that_slide_by_themselves_keep_their_own_rotary_embedding():
    config = make_config("gemma3")
    local = dict(config.rope_parameters["sliding_attention"])
    extend_positions(config, 2.0)
    assert config.rope_parameters["sliding_attention"] == local
    assert config.rope_parameters["full_attention"]["factor"] == 2.0
    AutoModelForCausalLM.from_config(config)


def test_what_cannot_be_extended_is_one_sentence():
    with pytest.raises(BoschError, match=r"is scaled already \(yarn\)"):
        extend_positions(make_config("gpt_oss"), 2.0)
    with pytest.raises(BoschError, match="a bloom has none"):
        extend_positions(BloomConfig(), 2.0)
    with pytest.raises(BoschError, match=r"YaRN must be a number above 1, got 1\.0"):
        EvalSettings(targets=("m",), tasks=("niah",), yarn=1.0)


@pytest.fixture(scope="module")
def searched_with_yarn(tmp_path_factory):
    """A search at twice the positions, and at a length that the model does not have."""
    path = tmp_path_factory.mktemp("yarn") / "run"
    options = "--ratio 0.5 --window 8 --tasks niah_single_1 --lengths 128 --examples 2 --heldout 2 --budget 1 --yarn 2"
    assert main(["search", "--model", str(TINY), *options.split(), "--dtype", "float32", "--output", str(path)]) == 0
    return path


def test_a_search_records_its_factor_and_its_hybrid_has_it(searched_with_yarn, tmp_path):
    assert read_json(searched_with_yarn / "run.json")["settings"]["yarn"] == 2.0
    recipe = read_target(str(searched_with_yarn))
    model, _ = open_target(recipe, dtype="float32", device="cpu")
    assert model.config.rope_parameters["factor"] == 2.0
    other, _ = open_target(recipe, dtype="float32", device="cpu", yarn=4.0)
    assert other.config.rope_parameters["factor"] == 4.0
    assert mask_of(other.config) == mask_of(model.config)
    torch.testing.assert_close(other.model.rotary_emb.inv_freq, frequencies(10000.0, 16, 4.0, 1024))


def test_an_export_writes_the_factor_and_loads_with_it(searched_with_yarn, tmp_path):
    for options, factor in (([], 2.0), (["--yarn", "4"], 4.0)):
        path = tmp_path / str(factor)
        assert main(["export", str(searched_with_yarn), "--output", str(path), *options]) == 0
        config = read_json(path / "config.json")
        assert config["rope_parameters"]["rope_type"] == "yarn"
        assert config["rope_parameters"]["factor"] == factor
        assert config["rope_parameters"]["original_max_position_embeddings"] == 1024
        assert config["max_position_embeddings"] == 1024 * factor
        loaded = AutoModelForCausalLM.from_pretrained(path)
        torch.testing.assert_close(loaded.model.rotary_emb.inv_freq, frequencies(10000.0, 16, factor, 1024))
    assert AutoConfig.from_pretrained(path).bosch["layers"][0]["window"] == 8


def test_a_factor_that_shrinks_is_refused_by_the_command(tmp_path, capsys):
    assert main(["search", "--model", str(TINY), "--ratio", "0.5", "--window", "8", "--yarn", "0.5",
                 "--output", str(tmp_path / "run")]) == 2  # fmt: skip
    assert "the factor of YaRN must be a number above 1, got 0.5" in capsys.readouterr().err


def test_the_cache_beyond_the_trained_positions_holds_no_more_than_its_formula():
    model = hybridize(load_model(str(TINY), dtype="float32", device="cpu", yarn=2.0)[0], MASK)
    tokens = torch.randint(10, 3000, (1, 1501), generator=torch.Generator().manual_seed(0))
    cache = model.new_cache()
    for chunk in tokens.split(499, dim=1):
        logits = forward(model, chunk, cache)
    assert torch.isfinite(logits).all()
    formula = 4 * 2 * 16 * (12 * 1501 + 12 * (MASK.window + MASK.sinks))  # 6 layers, 2 of 4 heads full, float32
    assert formula <= cache.nbytes <= formula * 65 / 64

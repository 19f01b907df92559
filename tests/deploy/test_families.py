"""Model families end to end, against dense masks in their own place; all of them are in docs/models.md."""

import pytest
import torch

from bosch.decoder import Decoder
from bosch.deploy.hybridize import hybridize
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from end_to_end import check_family
from marks import slow_after
from small_models import small_model

SAMPLE = [
    *("gpt2", "opt", "llama4_text", "gemma4_text", "afmoe", "phi", "olmo3", "glm4", "lfm2", "qwen3_next"),
    *("jamba", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "whisper"),
]
"""Of each kind of attention, state and projection one."""


@pytest.mark.parametrize("model_type", slow_after(6, SAMPLE))
def test_family_end_to_end(model_type, tmp_path):
    decoder = check_family(small_model(model_type), tmp_path)
    assert decoder.layout.num_units


REFUSED = {
    "gemma3n_text": "layer 2 of the model shares keys with layer 0",
    "dory": "calls its 4 layers 8 times",
    "minimax": "keeps a MiniMaxCache of its own",
    "jetmoe": "attends to other keys than it keeps in its cache",
    "zamba2": "says that it is of layer -1",
    "mamba": "no layer of MambaForCausalLM called",
    "falcon": "does not route its attention",
    "zaya": "cannot be run on a few tokens, at once or layer by layer",
    "doge": r"of shape \(1, 6, 2, 2\)",
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_family_is_refused_in_a_sentence(model_type, tmp_path):
    with pytest.raises(BoschError, match=REFUSED[model_type]):
        check_family(small_model(model_type), tmp_path)


def test_layers_with_latent_keys_and_chunks_stay_as_they_are():
    assert Decoder(small_model("deepseek_v3")).layout.units_per_layer == (0, 0, 0, 0)
    assert Decoder(small_model("llama4_text")).layout.units_per_layer == (0, 0, 0, 2)


def test_shared_keys_are_refused_when_a_hybrid_is_made():
    """Gemma 4 whose last layers read the keys of others."""
    model = small_model("gemma4_text", num_kv_shared_layers=2)
    message = "layer 2 of the model shares keys with layer 0"
    with pytest.raises(BoschError, match=message):
        Decoder(model)
    with pytest.raises(BoschError, match=message):
        hybridize(model, HeadMask.all_full(HeadLayout((0, 2, 0, 2)), 4))


def test_what_cannot_be_deployed_says_so_before_a_search():
    assert Decoder(small_model("llama")).obstacle is None
    assert "MiniMaxCache" in str(Decoder(small_model("minimax")).obstacle)


@pytest.mark.parametrize("rows", [(2, 2, 2, 1), (2, 2, 2, 3), (2, 2, 2), (2, 2, 2, 2, 2)], ids=str)
def test_a_mask_of_another_layout_is_refused_wherever_it_comes_in(rows):
    decoder = Decoder(small_model("llama"))
    mask = HeadMask.all_sliding(HeadLayout(rows), 4)
    message = f"the mask was made for a model with {mask.layout}, but this model has 4 layers x 2 KV heads"
    with pytest.raises(BoschError, match=message):
        decoder.forward(torch.zeros(1, 5, dtype=torch.int64), mask)
    with pytest.raises(BoschError, match=message):
        decoder.state(mask, 0)
    with pytest.raises(BoschError, match=message), decoder.hybrid(mask):
        pass
    with pytest.raises(BoschError, match=message):
        hybridize(decoder.model, mask)


def test_an_offloaded_model_is_searched_and_deployed(tmp_path):
    """Weights that wait elsewhere, brought by hooks: nothing is reordered, as there is nothing to hold on to."""
    accelerate = pytest.importorskip("accelerate")
    expected = Decoder(small_model("llama"))
    mask = HeadMask.all_sliding(expected.layout, 4, 2).assign({(1, 0): True, (2, 1): True})
    ids = torch.arange(3, 26)[None]
    logits = expected.forward(ids, mask)
    offloaded = accelerate.cpu_offload(small_model("llama"), execution_device=torch.device("cpu"))
    torch.testing.assert_close(Decoder(offloaded).forward(ids, mask), logits, rtol=0, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(hybridize(offloaded, mask)(ids).logits, logits, rtol=0, atol=1e-4)

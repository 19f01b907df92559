"""Models that see images: the language model inside is searched with text and deployed where it is."""

import pytest
import torch
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Llama4Config,
    Llama4ForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    PreTrainedModel,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from bosch.decoder import Decoder
from bosch.deploy import modeling_bosch
from bosch.deploy.hybridize import hybridize, mask_of
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.selectors import random_mask
from interface_reference import dense_attention

IMAGE = 90
"""The token that stands for a piece of the image."""
TEXT = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
VISION = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 4,  # as many as the language model has
    "num_attention_heads": 3,
    "initializer_range": 0.2,
}


def gemma3() -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    text = {**TEXT, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"] * 2}
    vision = {**VISION, "image_size": 16, "patch_size": 4, "vision_use_head": False}
    tokens = {"image_token_index": IMAGE, "boi_token_index": 91, "eoi_token_index": 92}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **tokens)
    ids = prompt(4)
    return Gemma3ForConditionalGeneration(config), {
        "input_ids": ids,
        "pixel_values": pixels(1, 3, 16, 16),
        "token_type_ids": (ids == IMAGE).long(),
    }


def mistral3() -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    config = Mistral3Config(
        text_config={**TEXT, "model_type": "mistral", "sliding_window": None},
        vision_config={**VISION, "model_type": "pixtral", "image_size": 16, "patch_size": 4, "head_dim": 8},
        image_token_index=IMAGE,
        spatial_merge_size=2,
    )
    return Mistral3ForConditionalGeneration(config), {
        "input_ids": prompt(4),
        "pixel_values": pixels(1, 3, 16, 16),
        "image_sizes": torch.tensor([[16, 16]]),
    }


def qwen3_vl() -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    vision = {"depth": 4, "hidden_size": 24, "intermediate_size": 32, "num_heads": 3, "patch_size": 4,
              "temporal_patch_size": 1, "spatial_merge_size": 2, "out_hidden_size": 48, "num_position_embeddings": 16,
              "deepstack_visual_indexes": [1], "initializer_range": 0.2}  # fmt: skip
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}}
    tokens = {"image_token_id": IMAGE, "video_token_id": 93, "vision_start_token_id": 91, "vision_end_token_id": 92}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **tokens)
    ids = prompt(4)
    return Qwen3VLForConditionalGeneration(config), {
        "input_ids": ids,
        "pixel_values": pixels(16, 48),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == IMAGE).long(),
    }


def llama4() -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    text = {**TEXT, "intermediate_size_mlp": 56, "num_local_experts": 4, "attention_chunk_size": 16,
            "layer_types": ["chunked_attention", "full_attention"] * 2}  # fmt: skip
    vision = {**VISION, "image_size": 16, "patch_size": 4, "vision_output_dim": 24, "projector_input_dim": 24,
              "projector_output_dim": 24, "intermediate_size": 96, "pixel_shuffle_ratio": 0.5}  # fmt: skip
    config = Llama4Config(
        vision_config=vision, text_config=text, image_token_index=IMAGE, boi_token_index=91, eoi_token_index=92
    )
    return Llama4ForConditionalGeneration(config), {"input_ids": prompt(4), "pixel_values": pixels(1, 3, 16, 16)}


def test_a_model_that_takes_no_text_alone_is_refused():
    """Llama 4 of transformers 5.24 fails by itself where no image is given."""
    model = llama4()[0].eval()
    with pytest.raises(BoschError, match="Llama4ForConditionalGeneration cannot be run on a few tokens"):
        Decoder(model)
    with pytest.raises(BoschError, match="Llama4ForConditionalGeneration cannot be run on a few tokens"):
        hybridize(model, HeadMask.all_full(HeadLayout((0, 2, 0, 2)), 4))


def prompt(num_pieces: int) -> torch.Tensor:
    """(1, 21) tokens with an image in the middle."""
    ids = torch.randint(3, 80, (1, 21), generator=torch.Generator().manual_seed(2))
    ids[0, 6] = 91
    ids[0, 7 : 7 + num_pieces] = IMAGE
    ids[0, 7 + num_pieces] = 92
    return ids


def pixels(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("make", [gemma3, mistral3, qwen3_vl])
def test_with_an_image_in_the_prompt_the_small_cache_generates_what_dense_masks_do(make, tmp_path):
    torch.manual_seed(0)
    model, inputs = make()
    model = model.eval()
    decoder = Decoder(model)
    mask = random_mask(HeadMask.all_full(decoder.layout, 5, 2), 0.5, seed=1)
    ids = torch.randint(3, 80, (2, 23), generator=torch.Generator().manual_seed(4))
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with torch.no_grad():
        stock = model(**inputs, use_cache=False).logits
        with dense_attention(model, mask):
            expected_text = model(input_ids=ids, use_cache=False).logits
            expected = model(**inputs, use_cache=False).logits
            expected_tokens = model.generate(**inputs, use_cache=False, **options)
        assert (expected - stock).abs().max() > 1e-2
        torch.testing.assert_close(decoder.forward(ids, mask), expected_text, rtol=0, atol=1e-4)
        hybrid = hybridize(model, mask)
        torch.testing.assert_close(hybrid(**inputs).logits, expected, rtol=0, atol=1e-4)
        found = hybrid.generate(**inputs, **options, return_dict_in_generate=True)
        assert torch.equal(found.sequences, expected_tokens)
        assert type(found[modeling_bosch.CACHE]) is modeling_bosch.BoschCache
        hybrid.save_pretrained(tmp_path)
        loaded = getattr(modeling_bosch, type(hybrid).__name__).from_pretrained(tmp_path).eval()
        assert mask_of(loaded.config) == mask
        assert torch.equal(loaded.generate(**inputs, **options), expected_tokens)

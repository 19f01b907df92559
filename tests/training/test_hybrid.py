"""What is trained computes what is deployed, and goes back into exports."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from bosch.cli import main
from bosch.deploy import hybridize, mask_of
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.training.hybrid import open_hybrid


@torch.no_grad()
def logits(model, ids: Tensor) -> Tensor:
    return model(input_ids=ids, use_cache=False).logits


def test_what_is_trained_is_what_is_deployed(tiny_path, tiny_mask, tiny_export, token_ids) -> None:
    hybrid = open_hybrid(tiny_export)
    original, _ = load_model(str(tiny_path), dtype="float32", device="cpu")
    full = logits(original, token_ids)
    deployed = logits(hybridize(original, tiny_mask), token_ids)
    assert (full - deployed).abs().max() > 0.5
    with hybrid.attending():
        torch.testing.assert_close(logits(hybrid.model, token_ids), deployed, rtol=0, atol=1e-4)
    torch.testing.assert_close(logits(hybrid.model, token_ids), full, rtol=0, atol=1e-4)


def test_changed_weights_are_written_as_an_export(tiny_export, tiny_mask, tiny_path, token_ids, tmp_path) -> None:
    hybrid = open_hybrid(tiny_export)
    with torch.no_grad(), hybrid.attending():
        for parameter in hybrid.model.parameters():
            parameter.mul_(1.1)
        expected = logits(hybrid.model, token_ids)
    hybrid.write(tmp_path, hybrid.model.state_dict(), {"tokens": 1234})
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert mask_of(loaded.config) == tiny_mask == HeadMask.load(tmp_path / "mask.json")
    torch.testing.assert_close(logits(loaded, token_ids), expected, rtol=0, atol=1e-4)
    names = {path.relative_to(tiny_export) for path in tiny_export.rglob("*")}
    assert names == {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    found, before = (load_file(path / "model.safetensors") for path in (tmp_path, tiny_export))
    assert found.keys() == before.keys()  # tied weights once
    again = open_hybrid(tmp_path)
    with again.attending():
        torch.testing.assert_close(logits(again.model, token_ids), expected, rtol=0, atol=1e-4)


def test_the_card_of_a_trained_hybrid_says_so(tiny_export, tmp_path) -> None:
    hybrid = open_hybrid(tiny_export)
    hybrid.write(tmp_path, hybrid.model.state_dict(), {"tokens": 1234})
    card, before = ((path / "README.md").read_text() for path in (tmp_path, tiny_export))
    assert "A hybrid of `someone/original`" in card
    assert "| `tokens` | 1234 |" in card
    assert "No weight was trained" not in card
    assert "The weights are the original's, trained further, so its license applies." in card
    assert "No weight was trained" in before
    assert "## Training" not in before


def test_an_export_keeps_the_dtype_of_the_checkpoint(tiny_path, tiny_mask, tmp_path) -> None:
    model, tokenizer = load_model(str(tiny_path), dtype="bfloat16", device="cpu")
    model.save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    tiny_mask.save(tmp_path / "mask.json", {})
    command = ["export", "--model", str(tmp_path / "half"), "--mask", str(tmp_path / "mask.json")]
    assert main([*command, "--output", str(tmp_path / "hybrid")]) == 0
    hybrid = open_hybrid(tmp_path / "hybrid")
    assert hybrid.model.dtype == torch.float32
    (tmp_path / "trained").mkdir()
    hybrid.write(tmp_path / "trained", hybrid.model.state_dict(), {"tokens": 1})
    weights = load_file(tmp_path / "trained/model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "trained").dtype == torch.bfloat16


def test_a_search_is_trained_like_its_export(tiny_path, tmp_path, token_ids) -> None:
    options = "--ratio 0.5 --window 8 --tasks niah_single_1 --lengths 128 --examples 2 --heldout 2 --method intr"
    run = tmp_path / "run"
    assert main(["search", "--model", str(tiny_path), *options.split(), "--output", str(run)]) == 0
    assert main(["export", str(run), "--output", str(tmp_path / "export")]) == 0
    found = []
    for path in (run, tmp_path / "export"):
        hybrid = open_hybrid(path)
        with hybrid.attending():
            found.append(logits(hybrid.model, token_ids))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_what_is_no_hybrid_is_refused(tiny_path, tmp_path) -> None:
    with pytest.raises(BoschError, match="is no hybrid; expected the directory of a search or of an export"):
        open_hybrid(tiny_path)
    with pytest.raises(BoschError, match="no such directory"):
        open_hybrid(tmp_path / "nowhere")


def test_an_export_without_its_mask_is_refused(tiny_export, tmp_path) -> None:
    path = Path(shutil.copytree(tiny_export, tmp_path / "hybrid"))
    (path / "mask.json").unlink()
    with pytest.raises(BoschError, match=r"mask\.json"):
        open_hybrid(path)

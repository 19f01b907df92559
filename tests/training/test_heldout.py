"""Held-out scores, against those of a search's evaluator, which runs the model layer by layer."""

import math

import pytest
import torch

from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Score
from bosch.training.heldout import score_examples, summarize


def test_scores_are_those_of_a_search(tiny_path, tiny_mask) -> None:
    model, tokenizer = load_model(str(tiny_path), dtype="float32", device="cpu")
    options = {"tasks": ["niah_single_1", "niah_single_2"], "lengths": [128, 192], "seed": 5}
    examples = make_examples(tokenizer, **options, num_examples=14, split="heldout")
    decoder = Decoder(model)
    judge = Evaluator(decoder, examples, window=8, sinks=1)
    for mask in (tiny_mask, judge.full):
        with decoder.hybrid(mask):
            found = score_examples(model, examples)
        expected = judge.score(mask)
        assert found.hits == expected.hits
        torch.testing.assert_close(torch.tensor(found.nlls), torch.tensor(expected.nlls), rtol=0, atol=1e-4)
    summary = summarize(found, examples)
    assert summary["accuracy"] == sum(found.hits) / 14
    assert summary["nll"] == pytest.approx(sum(found.nlls) / 14)
    # 14 examples of four combinations: 4, 4, 3 and 3 of each
    names = [name for name in summary if "@" in name]
    assert sorted(names) == [f"niah_single_{task} @ {length}" for task in (1, 2) for length in (128, 192)]
    assert sum(round(summary[name] * count) for name, count in zip(names, (4, 4, 3, 3), strict=True)) == sum(found.hits)


def test_blocks_of_one_decoder_can_be_nested(tiny_path, tiny_mask, token_ids) -> None:
    """The original is scored while the hybrid is trained; the hybrid is then one again."""
    model, _ = load_model(str(tiny_path), dtype="float32", device="cpu")
    decoder = Decoder(model)
    with torch.no_grad(), decoder.hybrid(tiny_mask):
        before = model(token_ids, use_cache=False).logits
        with decoder.hybrid(HeadMask.all_full(decoder.layout, 1)):
            inner = model(token_ids, use_cache=False).logits
        after = model(token_ids, use_cache=False).logits
    torch.testing.assert_close(before, after, rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(inner, model(token_ids, use_cache=False).logits, rtol=0, atol=1e-4)
    assert (inner - before).abs().max() > 0.5


def test_a_model_that_gives_no_number_is_named(tiny_path) -> None:
    _, tokenizer = load_model(str(tiny_path), dtype="float32", device="cpu")
    examples = make_examples(tokenizer, tasks=["niah_single_1"], lengths=[128], num_examples=2, seed=5, split="heldout")
    with pytest.raises(BoschError, match="held-out needles: the answer NLL is nan"):
        summarize(Score((False, False), (1.0, math.nan)), examples)

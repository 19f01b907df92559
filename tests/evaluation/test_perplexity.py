"""NLL by position, against one plain pass without a cache."""

import pytest
import torch

from bosch.calibration.haystack import shipped_prose
from bosch.deploy import hybridize
from bosch.deploy.forward import predict
from bosch.errors import BoschError
from bosch.evaluation.perplexity import measure_perplexity
from bosch.models import load_model
from evaluation.conftest import MASK
from tiny_checkpoint import TINY

TEXT = shipped_prose()[:4000]


def plain_nlls(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1].double()
    return -logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


@pytest.mark.parametrize("batch_tokens", [1000, 211, 31])
def test_buckets_are_means_over_positions_and_texts(tiny, batch_tokens):
    model, tokenizer = tiny
    found = measure_perplexity(model, tokenizer, TEXT, 211, 3, batch_tokens)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    bos = [] if tokenizer("a")["input_ids"][0] != tokenizer.bos_token_id else [tokenizer.bos_token_id]
    size = 211 - len(bos)
    nlls = torch.stack([plain_nlls(model, bos + ids[i * size : (i + 1) * size]) for i in range(3)])
    expected = {
        "nll": nlls.mean(),
        "nll 0-63": nlls[:, :63].mean(),  # the first token is not predicted
        "nll 64-127": nlls[:, 63:127].mean(),
        "nll 128-210": nlls[:, 127:].mean(),
    }
    assert found["num_examples"] == 3
    assert found["scores"] == pytest.approx({name: value.item() for name, value in expected.items()}, abs=1e-4)


def test_a_hybrid_goes_through_its_own_cache(tiny):
    tokenizer = tiny[1]
    hybrid = hybridize(load_model(str(TINY), dtype="float32", device="cpu")[0], MASK)
    found = measure_perplexity(hybrid, tokenizer, TEXT, 131, 2, 50)
    size = 131 - (tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id)
    prefix = [tokenizer.bos_token_id] * (131 - size)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    nlls = torch.stack([plain_nlls(hybrid, prefix + ids[i * size : (i + 1) * size]) for i in range(2)])
    assert found["scores"]["nll"] == pytest.approx(nlls.mean().item(), abs=1e-4)


@pytest.mark.parametrize(("first", "chunk"), [(1, 7), (1, 100), (29, 7), (41, 7), (42, 41)])
def test_chunks_give_every_wanted_prediction_once(tiny, first, chunk):
    model = tiny[0]
    tokens = torch.randint(10, 3000, (2, 43), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits[:, first - 1 : -1]
    pieces = list(predict(model, tokens, first, chunk))
    starts = [start for start, _ in pieces]
    sizes = [logits.shape[1] for _, logits in pieces]
    assert starts[0] == first
    assert [start + size for start, size in zip(starts, sizes, strict=True)] == [*starts[1:], 43]
    torch.testing.assert_close(torch.cat([logits for _, logits in pieces], dim=1), expected, atol=1e-4, rtol=1e-4)


def test_a_short_text_is_refused(tiny):
    with pytest.raises(BoschError, match=r"the text has \d+ tokens, too few for a piece of 500"):
        measure_perplexity(*tiny, "the cat sat", 500, 1, 100)

"""Everything that must hold for a model family to be called supported, in one function."""

import copy
from pathlib import Path

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel

from bosch.decoder import Decoder
from bosch.deploy import modeling_bosch
from bosch.deploy.hybridize import hybridize
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.selectors import random_mask
from interface_reference import dense_attention

WINDOW, SINKS, LENGTH, PROMPT = 4, 2, 23, 13
TOLERANCE = 1e-5
"""Of logits, relative to the largest one: float32 rounding."""


def tokens(rows: int = 2) -> Tensor:
    """(rows, LENGTH) random tokens, no padding among them."""
    return torch.randint(3, 97, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


def check_family(model: PreTrainedModel, directory: Path) -> Decoder:
    """Search mode, deployed with the small cache, exported and loaded again: each gives the dense reference's logits.

    Args:
        model: a small random model in float32.
        directory: an empty one, for the checkpoint.

    Returns:
        What the model was taken apart to.

    Raises:
        BoschError: it is refused.
        AssertionError: something is wrong.
    """
    with torch.no_grad():
        decoder = Decoder(model)
        if not decoder.layout.num_units:
            return decoder
        if decoder.obstacle:
            raise BoschError(decoder.obstacle)
        stock = model(input_ids=tokens(), use_cache=False).logits
        with dense_attention(model, None):
            _close("the reference itself", model(input_ids=tokens(), use_cache=False).logits, stock)
        mask = random_mask(HeadMask.all_full(decoder.layout, WINDOW, SINKS), 0.5, seed=1)
        with dense_attention(model, mask):
            expected = model(input_ids=tokens(), use_cache=False).logits
        assert (expected - stock).abs().max() > 100 * TOLERANCE * stock.abs().max(), "the mask changes nothing"
        _close("search mode", decoder.forward(tokens(), mask), expected)
        # A recurrence is summed otherwise step by step than at once, in the stock model too.
        noise = max(TOLERANCE, 2 * _error(token_by_token(model, DynamicCache(config=model.config)), stock))
        for reorder in (None, False):
            hybrid = hybridize(copy.deepcopy(model), mask, reorder=reorder)
            _close(f"deployed, reorder={reorder}", hybrid(input_ids=tokens(), use_cache=False).logits, expected)
            _close(
                f"with the small cache, reorder={reorder}", token_by_token(hybrid, hybrid.new_cache()), expected, noise
            )
        hybrid.save_pretrained(directory)
        loaded = getattr(modeling_bosch, type(hybrid).__name__).from_pretrained(directory).eval()
        _close("exported and loaded", token_by_token(loaded, loaded.new_cache()), expected, noise)
    return decoder


def token_by_token(model: PreTrainedModel, cache: Cache) -> Tensor:
    """Logits (B, LENGTH, V) with an empty cache: the prompt at once, the others one by one."""
    real = torch.ones_like(tokens())
    parts = []
    for part in tokens().split([PROMPT, *[1] * (LENGTH - PROMPT)], dim=1):
        stop = sum(logits.shape[1] for logits in parts) + part.shape[1]
        parts.append(
            model(input_ids=part, attention_mask=real[:, :stop], use_cache=True, **{modeling_bosch.CACHE: cache}).logits
        )
    return torch.cat(parts, dim=1)


def _close(what: str, found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    error = _error(found, expected)
    assert error <= tolerance, f"{what}: {error:.1e} away, expected at most {tolerance:.1e}"


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())

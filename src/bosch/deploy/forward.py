"""Forward passes through a cache, which is the small one where the model is a hybrid."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel

from bosch.deploy.modeling_bosch import CACHE, BoschMixin
from bosch.models.loading import check_tokens


def new_cache(model: PreTrainedModel) -> Cache:
    """An empty cache of the kind that the model generates with."""
    return model.new_cache() if isinstance(model, BoschMixin) else DynamicCache(config=model.config)


@torch.no_grad()
def forward(model: PreTrainedModel, tokens: Tensor, cache: Cache, num_kept: int = 1) -> Tensor:
    """One pass as `generate()` makes it: the head sees the last positions only, where the model lets us ask for that.

    Args:
        model: in eval mode.
        tokens: (B, n), those that follow what the cache holds.
        cache: is added to.
        num_kept: positions whose logits are wanted, at least 1.

    Returns:
        Logits (B, num_kept, vocabulary), of the last positions.
    """
    knows_option = "logits_to_keep" in inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"logits_to_keep": num_kept} if knows_option else {}
    return model(input_ids=tokens, use_cache=True, **{CACHE: cache}, **options).logits[:, -num_kept:]


def predict(model: PreTrainedModel, tokens: Tensor, first: int, chunk: int) -> Iterator[tuple[int, Tensor]]:
    """What a model predicts for given tokens, in chunks, so that no more than a chunk's activations are held at once.

    Args:
        model: in eval mode.
        tokens: (B, T).
        first: index of the first token whose prediction is wanted, at least 1.
        chunk: tokens that enter the model at a time.

    Raises:
        BoschError: the model has no embedding for a token.

    Yields:
        The index of a token, and the logits (B, n, vocabulary) for it and those after it.
    """
    check_tokens(model, int(tokens.max()))
    cache, num_read = new_cache(model), tokens.shape[1] - 1  # nothing follows the last token
    for start in range(0, num_read, chunk):
        stop = min(start + chunk, num_read)
        num_wanted = stop - max(start, first - 1)
        logits = forward(model, tokens[:, start:stop], cache, max(num_wanted, 1))
        if num_wanted > 0:
            yield stop - num_wanted + 1, logits


def rows_that_fit(length: int, num_tokens: int) -> int:
    """How many rows of a length are a batch of no more than so many tokens; one row always is."""
    return max(1, num_tokens // length)

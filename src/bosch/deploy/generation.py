"""Greedy text from a model, streamed, with what it cost."""

import dataclasses
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers import TextStreamer

from bosch.common.files import is_text
from bosch.deploy.modeling_bosch import BoschCache
from bosch.errors import BoschError
from bosch.models.loading import check_tokens

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel, PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class GenerationCost:
    """What a generation took.

    Args:
        num_prompt, num_new: tokens given and generated.
        cache_bytes: of keys and values at the end.
        prompt_seconds: until the first new token.
        decode_seconds: from the first new token to the last.
    """

    num_prompt: int
    num_new: int
    cache_bytes: int
    prompt_seconds: float
    decode_seconds: float


class _Clock(TextStreamer):
    """Streams text to stdout, or not, and notes when each token came."""

    def __init__(self, tokenizer: Any, silent: bool) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.silent = silent
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        """The prompt, then token by token."""
        self.times.append(time.monotonic())
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Show what can no longer change."""
        if not self.silent:
            print(text, end="\n" if stream_end else "", flush=True)


@torch.no_grad()
def generate(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompt: str,
    max_new_tokens: int,
    *,
    silent: bool = False,
) -> GenerationCost:
    """Generate greedily, printing the text as it comes.

    Args:
        model: any causal language model, a hybrid or not.
        tokenizer: the model's.
        prompt: the text to go on from, taken as it is, without a chat template.
        max_new_tokens: an end of text may come before.
        silent: print nothing.

    Raises:
        BoschError: the prompt is empty or no text, or has a token that the model has no embedding for.
    """
    if not is_text(prompt):
        raise BoschError(f"the prompt must be text, got {prompt!r:.60}")
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    if not prompt or not inputs["input_ids"].numel():
        raise BoschError("the prompt is empty; expected some text")
    check_tokens(model, int(inputs["input_ids"].max()))
    clock = _Clock(tokenizer, silent)
    output = model.generate(  # type: ignore[operator]
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        max_new_tokens=max_new_tokens,
        streamer=clock,
        return_dict_in_generate=True,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
    )
    started, first, last = clock.times[0], clock.times[1], clock.times[-1]
    num_prompt = inputs["input_ids"].shape[1]
    num_new = output.sequences.shape[1] - num_prompt
    return GenerationCost(num_prompt, num_new, cache_bytes(output.cache), first - started, last - first)


def cache_bytes(cache: "Cache") -> int:
    """Bytes of the keys and values that a cache of ours or of transformers' holds."""
    if isinstance(cache, BoschCache):
        return cache.nbytes
    tensors = (getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values"))
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def report(costs: Mapping[str, GenerationCost]) -> None:
    """A line on stderr for each."""
    for name, cost in costs.items():
        speed = (
            f"{(cost.num_new - 1) / cost.decode_seconds:.1f} tokens/s" if cost.num_new > 1 else "no more than a token"
        )
        print(
            f"{name}: {cost.cache_bytes:,} bytes of keys and values after {cost.num_prompt} + {cost.num_new} tokens, "
            f"prompt in {cost.prompt_seconds:.2f} s, then {speed}",
            file=sys.stderr,
        )

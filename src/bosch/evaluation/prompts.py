"""From the text of a prompt to what the model is sent: chat template, length, tokens."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode(tokenizer: "PreTrainedTokenizerBase", prompt: str) -> list[int]:
    """Token ids of a prompt, with the tokenizer's BOS once where it has one, and without an EOS after the text."""
    # A chat template has often written the BOS into the text already; two of them shift every attention sink.
    add_special_tokens = not (tokenizer.bos_token and prompt.startswith(tokenizer.bos_token))
    ids = tokenizer(prompt, add_special_tokens=add_special_tokens, truncation=False, verbose=False)["input_ids"]
    while ids and ids[-1] == tokenizer.eos_token_id and not prompt.endswith(tokenizer.eos_token):
        ids = ids[:-1]
    return ids


def cut_middle(
    tokenizer: "PreTrainedTokenizerBase",
    prompt: str,
    max_tokens: int,
    render: Callable[[str], str] = lambda prompt: prompt,
) -> str:
    """The prompt as it is sent, its middle left out where it would be longer than so many tokens.

    As LongBench does it: instructions stand at both ends, so the first and the last half of the allowed tokens are kept
    and their texts joined. Where the joined text, made tokens again, or what `render` puts around it would exceed
    the limit, less is kept.

    Args:
        tokenizer: the model's.
        prompt: instruction, context and question.
        max_tokens: limit on all that is sent, BOS and chat template included.
        render: what is put around the prompt, such as a chat template; nothing by default.

    Raises:
        BoschError: nothing of the prompt would be left.
    """
    rendered = render(prompt)
    excess = len(encode(tokenizer, rendered)) - max_tokens
    if excess <= 0:
        return rendered
    ids = encode(tokenizer, prompt)
    num_kept = max_tokens // 2
    while num_kept > 0:
        halves = (ids[:num_kept], ids[-num_kept:])
        rendered = render("".join(str(tokenizer.decode(half, skip_special_tokens=True)) for half in halves))
        excess = len(encode(tokenizer, rendered)) - max_tokens
        if excess <= 0:
            return rendered
        num_kept -= (excess + 1) // 2
    raise BoschError(f"a limit of {max_tokens} tokens leaves nothing of the prompt; expected a larger one")

"""Passkey prompts (after DuoAttention, Xiao et al., 2024, arXiv 2410.10819): sequences of random words are hidden in a
long text, and all of them are asked for at its end.

There, ten keys of 32 words lie in texts of 1,000 to 32,000 tokens. Here a key has 8 words, and a prompt has as many
keys as half of its length holds with their questions, from one to ten, so that they fit into the lengths of the
calibration set. The text is the prose that the package ships; the words are of the calibration split.
"""

import dataclasses
import functools
import itertools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bosch.calibration.generator import largest_fit
from bosch.calibration.haystack import cut, insert, prose_segments, shipped_prose, split_prose
from bosch.calibration.items import draw_items
from bosch.calibration.tokens import Tokens, check_tokenizer, tokenize
from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
PAIRS_PER_KEY = 4
"""A key is made of pairs of words, adjective and noun."""


@dataclasses.dataclass(frozen=True)
class PasskeyPrompt:
    """One prompt, its answers included.

    Args:
        input_ids: token ids of text, questions and answers.
        predicting: positions that predict a token of an answer: `t` predicts token `t + 1`.
    """

    input_ids: tuple[int, ...]
    predicting: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Draft:
    """Everything that was drawn for one prompt: its keys, where they lie, and where the prose begins."""

    keys: tuple[str, ...]
    depths: tuple[float, ...]
    start: int

    def text(self, num_units: int) -> str:
        """The prompt up to the questions, with so many words of prose."""
        prose = cut(prose_segments(split_prose(shipped_prose()), self.start), num_units)
        needles = [f"Remember the {nth} key: {key}." for nth, key in zip(ORDINALS, self.keys, strict=False)]
        return " ".join(["Some keys are hidden in the following text.", *insert(prose, needles, self.depths)])

    @property
    def questions(self) -> str:
        """All questions, each with its answer."""
        asked = zip(ORDINALS, self.keys, strict=False)
        return " ".join(f"What is the {nth} key? The {nth} key is: {key}." for nth, key in asked)


def make_passkey_prompt(tokenizer: "PreTrainedTokenizerBase", length: int, name: str) -> PasskeyPrompt:
    """A passkey prompt.

    Args:
        tokenizer: the model's; a fast one.
        length: tokens of the prompt, its answers included; it falls short of it by less than one word of prose.
        name: the seed, as text; the same name gives the same prompt.

    Raises:
        BoschError: a length that one key does not fit in, or a tokenizer that prompts cannot be made with.
    """
    check_tokenizer(tokenizer, chat=False)
    draft = _draw(tokenizer, length, name)

    @functools.cache
    def attempt(num_units: int) -> Tokens:
        return tokenize(tokenizer, draft.text(num_units), draft.questions)

    least = len(attempt(0).ids)
    if least > length:
        raise BoschError(f"length {length} is too short for a passkey prompt: one key alone takes {least} tokens")
    num_units = largest_fit(lambda num_units: len(attempt(num_units).ids), length)
    tokens, text = attempt(num_units), f"{draft.text(num_units)} {draft.questions}"
    return PasskeyPrompt(tokens.ids, tuple(_predicting(tokens, text, draft.keys)))


def _draw(tokenizer: "PreTrainedTokenizerBase", length: int, name: str) -> _Draft:
    """As many keys as half of the length holds, at random depths, in the order in which they are asked for."""
    rng = random.Random(name)
    pairs = draw_items("words", "calibration", rng)
    keys = [" ".join(itertools.islice(pairs, PAIRS_PER_KEY)).replace("-", " ") for _ in ORDINALS]
    depths = [rng.random() for _ in ORDINALS]
    start = rng.randrange(len(split_prose(shipped_prose())))

    def draft(num_keys: int) -> _Draft:
        return _Draft(tuple(keys[:num_keys]), tuple(sorted(depths[:num_keys])), start)

    drafts = [draft(num_keys) for num_keys in range(len(ORDINALS), 1, -1)]
    fitting = (one for one in drafts if len(tokenize(tokenizer, one.text(0), one.questions).ids) <= length / 2)
    return next(fitting, draft(1))


def _predicting(tokens: Tokens, text: str, keys: Sequence[str]) -> list[int]:
    """The positions right before the tokens of each key, where it is last named."""
    positions: list[int] = []
    for key in keys:
        start = text.rindex(key)
        first, last = tokens.index_at(start), tokens.index_at(start + len(key) - 1)
        positions += range(first - 1, last)
    return positions

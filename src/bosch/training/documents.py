"""A document as tokens, and where documents are made: by tokenizing texts, or by writing them."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS_AT_ONCE = 64
"""Texts that the tokenizer is given together, which it may spread over the cores."""


@dataclasses.dataclass(frozen=True)
class Document:
    """What one text becomes.

    Args:
        ids: its tokens, with the tokenizer's end-of-text token at the end.
        answer_start: index of the first token of its answer; 0 where it has none.
    """

    ids: list[int]
    answer_start: int = 0


class DocumentSource(Protocol):
    """Where a corpus has its documents from."""

    @property
    def location(self) -> str:
        """What it is called."""
        ...

    @property
    def weight(self) -> float:
        """Its share of a mixture, in tokens, in proportion to the other sources' weights."""
        ...

    def pinned(self) -> "DocumentSource":
        """The same source, at one state of what it reads."""
        ...

    def identity(self) -> dict[str, Any]:
        """What its documents depend on, as plain data."""
        ...

    def documents(self, tokenizer: "PreTrainedTokenizerBase") -> Iterator[Document]:
        """The documents, none of them empty; without end where they are made up."""
        ...


def tokenize_texts(texts: Iterator[str], tokenizer: "PreTrainedTokenizerBase") -> Iterator[Document]:
    """Each text as a document; blank texts and those of which no token is made are passed over."""
    end = tokenizer.eos_token_id
    texts = (text for text in texts if text.strip())  # a tokenizer may begin even these with a token of its own
    while some := list(itertools.islice(texts, TEXTS_AT_ONCE)):
        for ids in tokenizer(some, truncation=False, padding=False, verbose=False)["input_ids"]:
            if ids and ids != [end]:
                yield Document(ids if ids[-1] == end else [*ids, end])

"""Fully packed sequences (paper B.5): documents in one row, cut every N tokens.

Every token appears once and in order. A document that does not fit is cut, and goes on in the next sequence. The last
tokens, fewer than N, are dropped: there is no padding.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORED = -100
"""The label of a token that is no target, as transformers has it."""


@dataclasses.dataclass(frozen=True)
class PackedSequences:
    """A corpus as sequences of N tokens.

    Args:
        tokens: (num_tokens,) integers, all documents one after the other, each with its end-of-text token.
        starts: (num_documents,) integers, rising: where in `tokens` each document begins.
        length: N, at least 3.
        documents_apart: the documents of a sequence shall not see each other. Their positions begin at 0 then, also
            those of a document's rest at the beginning of a sequence, whose first part it cannot see either; and no
            document's first token is a target, as nothing before it tells what it will be.
        largest_id: of all tokens.
    """

    tokens: NDArray[np.integer]
    starts: NDArray[np.integer]
    length: int
    documents_apart: bool = False
    largest_id: int = 0

    def __len__(self) -> int:
        return len(self.tokens) // self.length

    def batch(self, indices: Iterable[int]) -> dict[str, Tensor]:
        """Some sequences, as a model takes them.

        Returns:
            `input_ids` and `labels` (B, N) int64, labels not shifted; and `position_ids` (B, N) int64 where documents
            are kept apart. Those that start again are what tells a model so.
        """
        rows = [slice(index * self.length, (index + 1) * self.length) for index in indices]
        input_ids = torch.from_numpy(np.stack([self.tokens[row] for row in rows]).astype(np.int64))
        if not self.documents_apart:
            return {"input_ids": input_ids, "labels": input_ids.clone()}
        labels, beginnings = input_ids.clone(), torch.zeros_like(input_ids)
        for row, borders in enumerate(map(self._borders, rows)):
            labels[row, borders] = IGNORED
            beginnings[row, borders] = torch.tensor(borders, dtype=torch.int64)
        position_ids = torch.arange(self.length) - beginnings.cummax(-1).values
        return {"input_ids": input_ids, "labels": labels, "position_ids": position_ids}

    def num_targets(self, indices: Iterable[int]) -> int:
        """Tokens of some sequences that are predicted: all but the first of each, and of each document if they are kept
        apart."""
        rows = [slice(index * self.length, (index + 1) * self.length) for index in indices]
        num_borders = sum(len(self._borders(row)) for row in rows) if self.documents_apart else 0
        return len(rows) * (self.length - 1) - num_borders

    def _borders(self, row: slice) -> list[int]:
        """Where in a sequence documents begin, its own beginning left out."""
        first, past = np.searchsorted(self.starts, [row.start + 1, row.stop])
        return (self.starts[first:past] - row.start).tolist()


def pack(documents: Iterable[Sequence[int]], length: int, *, documents_apart: bool = False) -> PackedSequences:
    """Pack documents that are in memory; arguments as of `PackedSequences`."""
    rows = [np.asarray(document, dtype=np.int64) for document in documents]
    starts = np.cumsum([0, *map(len, rows)])[:-1]
    tokens = np.concatenate([np.empty(0, np.int64), *rows])
    return PackedSequences(tokens, starts, length, documents_apart, int(tokens.max(initial=0)))


def reading_order(num_sequences: int, seed: int, first: int, count: int) -> list[int]:
    """The sequences that a training reads at some places of its way: every sequence once in each epoch, shuffled.

    It is a function of its arguments alone, so that the number of sequences read so far is all that a stopped training
    must remember.

    Args:
        num_sequences: of the corpus, at least 1.
        seed: of the shuffling.
        first: sequences read before.
        count: how many to read.
    """
    places = range(first, first + count)
    epochs = range(first // num_sequences, places[-1] // num_sequences + 1) if count else range(0)
    order = {epoch: np.random.default_rng([seed, epoch]).permutation(num_sequences) for epoch in epochs}
    return [int(order[place // num_sequences][place % num_sequences]) for place in places]

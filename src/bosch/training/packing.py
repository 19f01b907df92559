"""Fully packed sequences (paper B.5): documents in one row, cut every N tokens.

Every token appears once and in order. A document that does not fit is cut, and goes on in the next sequence. The last
tokens, fewer than N, are dropped: there is no padding.
"""

import dataclasses
from collections.abc import Iterable

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
        targets: (num_documents,) integers: from which token on each document is learned; its start, or where it has an
            answer and only answers shall be learned, the answer's.
        length: N, at least 3.
        documents_apart: the documents of a sequence shall not see each other. Their positions begin at 0 then, also
            those of a document's rest at the beginning of a sequence, whose first part it cannot see either; and no
            document's first token is a target, as nothing before it tells what it will be.
        largest_id: of all tokens.
    """

    tokens: NDArray[np.integer]
    starts: NDArray[np.integer]
    targets: NDArray[np.integer]
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
        firsts = [index * self.length for index in indices]
        rows = np.stack([self.tokens[first : first + self.length] for first in firsts])
        input_ids = torch.from_numpy(rows.astype(np.int64))
        labels, beginnings = input_ids.clone(), torch.zeros_like(input_ids)
        for row, first in enumerate(firsts):
            for start, target in self._documents(first):
                labels[row, max(start, 0) : max(target, 0)] = IGNORED
                if start > 0 and self.documents_apart:
                    labels[row, start] = IGNORED
                    beginnings[row, start] = start
        if not self.documents_apart:
            return {"input_ids": input_ids, "labels": labels}
        position_ids = torch.arange(self.length) - beginnings.cummax(-1).values
        return {"input_ids": input_ids, "labels": labels, "position_ids": position_ids}

    def num_targets(self, indices: Iterable[int]) -> int:
        """Tokens of some sequences that are predicted: those with a label, but for the first of each sequence."""
        return int((self.batch(indices)["labels"][:, 1:] != IGNORED).sum())

    def _documents(self, first: int) -> list[tuple[int, int]]:
        """Start and first target of each document in the sequence that begins at a token, counted from there."""
        some = slice(*np.searchsorted(self.starts, [first + 1, first + self.length]) - [1, 0])
        pairs = np.stack([self.starts[some], self.targets[some]], axis=1) - first
        return [tuple(pair) for pair in pairs.tolist()]


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

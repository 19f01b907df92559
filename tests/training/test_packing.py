"""Packing against what a reader of the documents would write down: lists, token by token."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import pack

from bosch.training.packing import IGNORED, reading_order

DOCUMENTS = st.lists(st.lists(st.integers(0, 96), min_size=2, max_size=23), max_size=17)


@given(DOCUMENTS, st.integers(3, 29), st.booleans())
def test_every_token_appears_once_and_in_order(documents: list[list[int]], length: int, apart: bool) -> None:
    packed = pack(documents, length, documents_apart=apart)
    row = [token for document in documents for token in document]
    assert len(packed) == len(row) // length
    if len(packed):
        input_ids = packed.batch(range(len(packed)))["input_ids"]
        assert input_ids.shape == (len(packed), length)
        assert input_ids.flatten().tolist() == row[: len(row) - len(row) % length]


@given(DOCUMENTS, st.integers(3, 29))
def test_documents_that_are_kept_apart(documents: list[list[int]], length: int) -> None:
    """Positions count from each document's first token in the sequence, which is no target."""
    packed = pack(documents, length, documents_apart=True)
    owners = [(number, token) for number, document in enumerate(documents) for token in document]
    for index in range(len(packed)):
        position_ids, labels = [], []
        for place, (number, token) in enumerate(owners[index * length : (index + 1) * length]):
            goes_on = place > 0 and owners[index * length + place - 1][0] == number
            position_ids.append(position_ids[-1] + 1 if goes_on else 0)
            labels.append(token if goes_on or place == 0 else IGNORED)
        batch = packed.batch([index])
        assert batch["position_ids"][0].tolist() == position_ids
        assert batch["labels"][0].tolist() == labels
        assert packed.num_targets([index]) == sum(label != IGNORED for label in labels[1:]) >= 1


def test_documents_that_see_each_other_are_one_text() -> None:
    packed = pack([[1, 2, 0], [3, 4, 5, 0], [6, 0]], 4)
    batch = packed.batch([1, 0])
    assert batch.keys() == {"input_ids", "labels"}
    torch.testing.assert_close(batch["input_ids"], torch.tensor([[4, 5, 0, 6], [1, 2, 0, 3]]))
    torch.testing.assert_close(batch["labels"], batch["input_ids"])
    assert packed.num_targets([0, 1]) == 6


@given(DOCUMENTS, st.data(), st.integers(3, 29), st.booleans())
def test_of_a_document_with_an_answer_only_that_is_a_target(
    documents: list[list[int]], data: st.DataObject, length: int, apart: bool
) -> None:
    firsts = [data.draw(st.integers(0, len(document) - 1)) for document in documents]
    packed = pack(documents, length, documents_apart=apart)
    packed = dataclasses.replace(packed, targets=packed.starts + np.array(firsts, dtype=np.int64))
    learned = [place >= first for first, doc in zip(firsts, documents, strict=True) for place in range(len(doc))]
    begins = [place == 0 for document in documents for place in range(len(document))]
    for index in range(len(packed)):
        batch = packed.batch([index])
        expected = []
        for place, token in enumerate(batch["input_ids"][0].tolist()):
            where = index * length + place
            is_border = apart and place > 0 and begins[where]
            expected.append(token if learned[where] and not is_border else IGNORED)
        assert batch["labels"][0].tolist() == expected
        assert packed.num_targets([index]) == sum(label != IGNORED for label in expected[1:])


def test_a_document_longer_than_a_sequence_starts_again_in_each() -> None:
    batch = pack([[7] * 9 + [0], [8, 0]], 4, documents_apart=True).batch([0, 1, 2])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 0, 1]]
    assert batch["labels"].tolist() == [[7] * 4, [7] * 4, [7, 0, IGNORED, 0]]


@given(st.integers(1, 13), st.integers(0, 40), st.integers(0, 40), st.integers(0, 5))
def test_the_reading_order_can_be_taken_up_anywhere(num_sequences: int, first: int, count: int, seed: int) -> None:
    whole = reading_order(num_sequences, seed, 0, first + count)
    assert whole[first:] == reading_order(num_sequences, seed, first, count)
    for epoch in range((first + count) // num_sequences):
        assert sorted(whole[epoch * num_sequences :][:num_sequences]) == list(range(num_sequences))


@pytest.mark.parametrize("other", [(0, 101), (1, 0)])
def test_another_seed_or_epoch_is_another_order(other: tuple[int, int]) -> None:
    seed, first = other
    assert reading_order(101, 0, 0, 101) != reading_order(101, seed, first, 101)

"""Needle documents, against held-out examples and against the wording of the tasks."""

import itertools
import re

import pytest

from bosch.calibration import make_examples
from bosch.training.needles import NeedleSource
from small_search import make_tokenizer

TASKS = ("niah_single_1", "niah_multikey_2", "niah_multikey_3")


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "<eos>"})
    return tokenizer


def documents(tokenizer, count: int, **options):
    source = NeedleSource(**{"tasks": TASKS[:1], "lengths": (160,)} | options)
    return list(itertools.islice(source.documents(tokenizer), count))


def test_a_document_asks_answers_and_ends(tokenizer) -> None:
    for document in documents(tokenizer, 60):
        assert document.ids[-1] == tokenizer.eos_token_id
        assert 140 < len(document.ids) <= 161
        text = tokenizer.decode(document.ids[: document.answer_start]).replace(" ", "")
        answer = tokenizer.decode(document.ids[document.answer_start : -1]).replace(" ", "")
        assert re.fullmatch(r"\d{7}", answer)
        key = re.search(r"Whatisthespecialmagicnumberfor(.+?)mentioned", text)[1]
        assert f"for{key}is:{answer}." in text
        assert text.endswith("mentionedintheprovidedtextis")


def test_no_held_out_key_or_value_is_ever_trained_on(tokenizer) -> None:
    """Three thousand lines of each, of every kind of key and value: all lie in one split or the other."""

    def items(texts: list[str]) -> set[str]:
        pairs = [re.findall(r"magic (?:numbers|uuids) for (\S+) is: (\S+?)\.", text) for text in texts]
        return {item for pair in itertools.chain.from_iterable(pairs) for item in pair}

    options = {"tasks": TASKS, "lengths": (512,)}
    heldout = make_examples(tokenizer, **options, num_examples=48, seed=0, split="heldout")
    # The same texts as the documents' own, whose tokens of this tokenizer do not say where a word ends.
    trained = make_examples(tokenizer, **options, num_examples=48, seed=0, split="calibration")
    assert [list(example.input_ids) for example in trained.examples] == [
        document.ids[:-1] for document in documents(tokenizer, 48, **options)
    ]
    apart = [items([example.prompt for example in some.examples]) for some in (heldout, trained)]
    assert min(map(len, apart)) > 500
    assert not apart[0] & apart[1]


def test_documents_are_a_function_of_their_seed_and_never_repeat(tokenizer) -> None:
    first, again, other = (documents(tokenizer, 100, seed=seed) for seed in (3, 3, 4))
    assert first == again
    contents = {tuple(document.ids) for document in first + other}
    assert len(contents) == 200


def test_what_the_documents_depend_on() -> None:
    source = NeedleSource(tasks=TASKS, lengths=(160,))
    assert source.pinned() == source
    changes = [{"seed": 1}, {"chat": True}, {"haystack": "A text."}, {"haystack": "Another."}, {"lengths": (161,)}]
    identities = [NeedleSource(**{"tasks": TASKS, "lengths": (160,)} | change).identity() for change in changes]
    assert len({str(identity) for identity in [source.identity(), *identities]}) == 6
    assert "A text." not in str(identities)

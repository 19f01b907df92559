import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from texts import EOS, make_tokenizer, text, write_json_lines
from tokenizers import processors

from bosch.errors import BoschError
from bosch.training.corpus import Corpus, corpus_facts, open_corpus, prepare_corpus
from bosch.training.sources import Document, Source


def corpus_of(*sources: Source | Path, **options: int) -> Corpus:
    return Corpus(tuple(one if isinstance(one, Source) else Source(location=str(one)) for one in sources), **options)


def prepared(tmp_path: Path, *sources: Source | Path, **options: int) -> tuple[list[int], list[int]]:
    """All tokens of a corpus, and where its documents begin."""
    path = prepare_corpus(corpus_of(*sources, **options), make_tokenizer(), tmp_path / "cache")
    packed = open_corpus(path, 3)
    return packed.tokens.tolist(), packed.starts.tolist()


def test_each_document_is_followed_by_one_end(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "a.jsonl", text(1, 2, 3), "", text(4) + " <eos>", " \n", text(5, 6))
    assert prepared(tmp_path, source) == ([1, 2, 3, EOS, 4, EOS, 5, 6, EOS], [0, 4, 6])


def test_a_tokenizer_that_begins_texts_does_so_once_a_document(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="w60 $A", special_tokens=[("w60", 60)]
    )
    source = write_json_lines(tmp_path / "a.jsonl", text(1, 2), "", " ", text(3))
    path = prepare_corpus(corpus_of(source), tokenizer, tmp_path / "cache")
    assert open_corpus(path, 3).tokens.tolist() == [60, 1, 2, EOS, 60, 3, EOS]


def test_a_directory_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "c.txt").write_text(text(5, 6) + "\n\n" + text(7))
    (folder / "b" / "a.md").write_text(text(3))
    write_json_lines(folder / "a.jsonl", text(1), text(2))
    (folder / "notes.csv").write_text(text(9))
    assert prepared(tmp_path, folder)[0] == [1, EOS, 2, EOS, 3, EOS, 5, 6, 7, EOS]


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"body": [text(1, 2), text(3)], "id": [1, 2]}), path)
    assert prepared(tmp_path, Source(location=str(path), field="body"))[0] == [1, 2, EOS, 3, EOS]
    with pytest.raises(BoschError, match=r"a\.parquet has no column 'text'; it has: body, id"):
        prepared(tmp_path, path)
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BoschError, match=r"a\.parquet: not a Parquet file"):
        prepared(tmp_path, Source(location=str(path), field="body"))


class Hub(types.ModuleType):
    """A stand-in for `datasets` and for the hub's answer."""

    def __init__(self, rows: list[dict]) -> None:
        super().__init__("datasets")
        self.rows, self.asked = rows, []

    def load_dataset(self, location: str, subset: str | None, **options: object) -> list[dict]:
        self.asked.append((location, subset, options))
        return self.rows


def test_a_hub_data_set_is_read_at_the_commit_it_is_cached_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub([{"text": text(1, 2)}, {"text": text(3)}])
    monkeypatch.setitem(sys.modules, "datasets", hub)
    commits = ["a" * 40, "a" * 40, "b" * 40]
    answer = lambda self, location, **_: types.SimpleNamespace(sha=commits.pop(0))  # noqa: E731
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", answer)
    source = Source(location="someone/prose", subset="en")
    for _ in range(3):
        assert prepared(tmp_path, source)[0] == [1, 2, EOS, 3, EOS]
    options = {"split": "train", "streaming": True}
    assert hub.asked == [("someone/prose", "en", options | {"revision": letter * 40}) for letter in "ab"]


def test_a_hub_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable\nand a long story")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", refuse)
    with pytest.raises(
        BoschError, match=r"'someone/prose' is neither a file, .* from the hub: Network is unreachable$"
    ):
        prepared(tmp_path, Source(location="someone/prose"))


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").touch()
    for source in (Source(location="someone/prose", revision="a" * 40), Source(location=str(tmp_path / "a.parquet"))):
        with pytest.raises(BoschError, match=r"needs .*, which cannot be imported.*pip install 'bosch-swa\[train\]'"):
            prepared(tmp_path, source)


def test_every_stretch_of_a_mixture_holds_its_shares(tmp_path: Path) -> None:
    """Long and short documents: shares are of tokens, not of documents."""
    ones = write_json_lines(tmp_path / "a.jsonl", *[text(*[1] * 10)] * 300)
    twos = write_json_lines(tmp_path / "b.jsonl", *[text(2, 2)] * 900)
    sources = Source(location=str(ones), weight=3), Source(location=str(twos), weight=1)
    tokens, starts = prepared(tmp_path, *sources)
    owner = np.repeat(np.array(tokens)[starts], np.diff([*starts, len(tokens)]))
    for stretch in range(100, len(tokens), 100):
        share = np.count_nonzero(owner[:stretch] == 1) / stretch
        assert abs(share - 0.75) <= 11 / stretch
    assert (owner == 1).sum() == 300 * 11  # the first to end


class Questions:
    """Documents whose last word is the answer."""

    location, weight = "questions", 1.0

    def pinned(self) -> "Questions":
        return self

    def identity(self) -> dict:
        return {"questions": 1}

    def documents(self, tokenizer) -> Iterator[Document]:
        return iter([Document([1, 2, 3, EOS], 2), Document([4, 5, EOS], 1), Document([6, 7, 8, EOS], 2)])


def test_answers_are_what_is_learned_where_there_are_some(tmp_path: Path) -> None:
    text_source = Source(location=str(write_json_lines(tmp_path / "a.jsonl", text(9, 10, 11), text(12, 13))))
    path = prepare_corpus(Corpus((Questions(), text_source)), make_tokenizer(), tmp_path / "cache")
    row = [1, 2, 3, EOS, 9, 10, 11, EOS, 4, 5, EOS, 12, 13, EOS, 6, 7, 8, EOS]
    learned = [3, EOS, 9, 10, 11, EOS, 5, EOS, 12, 13, EOS, 8, EOS]
    for answers_only, expected in ((False, row), (True, learned)):
        labels = open_corpus(path, 18, answers_only=answers_only).batch([0])["labels"][0]
        assert labels[labels != -100].tolist() == expected


def test_a_limit_of_tokens(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "a.jsonl", text(1, 1, 1), text(2, 2), text(3))
    assert prepared(tmp_path, source, max_tokens=5)[0] == [1, 1, 1, EOS, 2, 2, EOS]
    assert prepared(tmp_path, source, max_tokens=4)[0] == [1, 1, 1, EOS]


def test_a_corpus_is_tokenized_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its files are moved; anything that its tokens depend on gives it another place."""
    source = write_json_lines(tmp_path / "a.jsonl", text(1, 2, 3), text(4))
    cache, tokenizer = tmp_path / "cache", make_tokenizer()
    first = prepare_corpus(corpus_of(source), tokenizer, cache)
    moved = source.rename(tmp_path / "b.jsonl")
    monkeypatch.setattr("bosch.training.corpus._write_tokens", None)
    assert prepare_corpus(corpus_of(moved), tokenizer, cache) == first
    monkeypatch.undo()
    others = [prepare_corpus(corpus_of(moved, max_tokens=4), tokenizer, cache)]
    other_tokenizer = make_tokenizer()
    other_tokenizer.add_tokens(["w1 w2"])
    others.append(prepare_corpus(corpus_of(moved), other_tokenizer, cache))
    write_json_lines(moved, text(1, 2, 3), text(5))
    others.append(prepare_corpus(corpus_of(moved), tokenizer, cache))
    assert len({first, *others}) == 4


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "a.jsonl", *(text(index % 60, 1) for index in range(200)))
    paths = [prepare_corpus(corpus_of(source), make_tokenizer(), tmp_path / name) for name in "xy"]
    contents = [{file.name: file.read_bytes() for file in path.iterdir()} for path in paths]
    assert contents[0] == contents[1]
    assert paths[0].name == paths[1].name


def test_what_a_stopped_process_left_is_replaced(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "a.jsonl", text(1, 2, 3))
    expected = prepare_corpus(corpus_of(source), make_tokenizer(), tmp_path / "elsewhere").name
    remains = tmp_path / "cache" / f".{expected}.partial"
    remains.mkdir(parents=True)
    (remains / "tokens.u32").write_bytes(b"half")
    assert prepared(tmp_path, source)[0] == [1, 2, 3, EOS]
    assert not remains.exists()


def test_a_full_disk_leaves_the_cache_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    source = write_json_lines(tmp_path / "a.jsonl", text(1, 2, 3))
    monkeypatch.setattr("bosch.training.corpus._append", full)
    with pytest.raises(BoschError, match=r"cannot write the cache of tokens .*: No space left on device"):
        prepared(tmp_path, source)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def write_bytes(content: bytes) -> Callable[[Path], Source]:
    def write(folder: Path) -> Source:
        (folder / "a.jsonl").write_bytes(content)
        return Source(location=str(folder / "a.jsonl"))

    return write


def a_directory_without_text(folder: Path) -> Source:
    (folder / "texts").mkdir()
    (folder / "texts" / "a.csv").write_text("w1")
    return Source(location=str(folder / "texts"))


def a_file_of_another_kind(folder: Path) -> Source:
    (folder / "a.csv").write_text("w1")
    return Source(location=str(folder / "a.csv"))


def a_text_of_other_bytes(folder: Path) -> Source:
    (folder / "a.txt").write_bytes(b"\xff\xfe w1")
    return Source(location=str(folder / "a.txt"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (write_bytes(b""), r"there is no text in .*a\.jsonl; expected at least one document that is not empty"),
        (write_bytes(b'{"text": ""}\n{"text": " "}\n'), r"there is no text in"),
        (write_bytes(b'{"text": "w1"}\n{"txt": "w1"}\n'), r"a\.jsonl, line 2: there is no field 'text'; found txt"),
        (write_bytes(b'{"text": ["w1"]}\n'), r"line 1: the field 'text' must be a text, found \['w1'\]"),
        (write_bytes(b'["w1"]\n'), r"line 1: there is no field 'text'; found \['w1'\]"),
        (write_bytes(b'{"text": \n'), r"a\.jsonl, line 1: not valid JSON"),
        (write_bytes(b"[" * 200_000), r"a\.jsonl, line 1: not valid JSON"),
        (write_bytes(b'{"text": "\xff"}\n'), r"a\.jsonl: not UTF-8 text"),
        (lambda folder: Source(location=str(folder / "none.jsonl")), "no such file or directory: .*none.jsonl"),
        (lambda folder: Source(location="none.jsonl"), r"no such file or directory: none\.jsonl"),
        (a_directory_without_text, r"texts holds no text; expected files that end in \.txt, \.md, \.jsonl, \.parquet"),
        (a_file_of_another_kind, r"a\.csv is of no known kind; expected a file that ends in"),
        (a_text_of_other_bytes, r"a\.txt: not UTF-8 text"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(tmp_path: Path, make: Callable[[Path], Source], message: str) -> None:
    with pytest.raises(BoschError, match=message):
        prepared(tmp_path, make(tmp_path))
    assert not [path for path in tmp_path.glob("cache/*") if path.suffix != ".lock"]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), True])
def test_weights_are_positive(weight: float) -> None:
    with pytest.raises(BoschError, match="weight of a must be a positive number"):
        Source(location="a", weight=weight)


def test_a_corpus_needs_a_source_and_room() -> None:
    with pytest.raises(BoschError, match="at least one source"):
        Corpus(())
    with pytest.raises(BoschError, match="max_tokens must be an integer of at least 1"):
        corpus_of(Source(location="a"), max_tokens=0)


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "a.jsonl", text(1))
    with pytest.raises(BoschError, match="no end-of-text token"):
        prepare_corpus(corpus_of(source), make_tokenizer(eos_token=None), tmp_path / "cache")


def test_a_corpus_shorter_than_a_sequence_is_refused(tmp_path: Path) -> None:
    path = prepare_corpus(corpus_of(write_json_lines(tmp_path / "a.jsonl", text(1, 2, 3))), make_tokenizer(), tmp_path)
    assert len(open_corpus(path, 4)) == 1
    with pytest.raises(BoschError, match="the corpus has 4 tokens, not one sequence of 5"):
        open_corpus(path, 5)
    with pytest.raises(BoschError, match="at least 3 tokens long, got 2"):
        open_corpus(path, 2)


def test_damage_is_named(tmp_path: Path) -> None:
    path = prepare_corpus(corpus_of(write_json_lines(tmp_path / "a.jsonl", text(1, 2, 3))), make_tokenizer(), tmp_path)
    assert corpus_facts(path)["largest_id"] == EOS
    (path / "tokens.u32").write_bytes(b"12345")
    with pytest.raises(BoschError, match=r"tokens\.u32 is damaged: expected 4 values of 4 bytes; delete"):
        open_corpus(path, 3)
    (path / "corpus.json").write_text(json.dumps({"schema": "other"}))
    with pytest.raises(BoschError, match="is not a corpus: expected the schema"):
        open_corpus(path, 3)
    with pytest.raises(BoschError, match=r"corpus\.json: cannot read it"):
        open_corpus(tmp_path / "nowhere", 3)

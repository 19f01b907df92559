"""A corpus in the cache: documents of one or several sources, tokenized once, as one long row of tokens.

The row is not yet cut, so that sequences of any length are made of the same files. They are raw little-endian integers:
`tokens.u32`, and for each document where it begins in `documents.i64`, and where its answer does, or again the document
if it has none, in `answers.i64`; `corpus.json` says how many there are and of what.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from tqdm import tqdm

from bosch.common.files import read_json, write_json
from bosch.errors import BoschError
from bosch.training.packing import PackedSequences
from bosch.training.sources import Document, DocumentSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CORPUS_SCHEMA = "bosch.corpus/1"


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What is trained on.

    Args:
        sources: at least one. Of several, the next document is always of the source that lies furthest behind its
            share of the tokens, so that every stretch holds the mixture; the corpus ends where that source has ended,
            and what is left of the others is not used.
        max_tokens: documents after so many tokens are left out; None: all are used.

    Raises:
        BoschError: no source, or a limit below 1.
    """

    sources: tuple[DocumentSource, ...]
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise BoschError("a corpus needs at least one source of text, got none")
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise BoschError(f"max_tokens must be an integer of at least 1 token, got {self.max_tokens!r}")


def prepare_corpus(corpus: Corpus, tokenizer: "PreTrainedTokenizerBase", cache: Path) -> Path:
    """Tokenize a corpus into the cache, if it is not there; processes that ask at the same time wait for the first.

    Args:
        corpus: what to tokenize.
        tokenizer: adds a beginning of its own (BOS) if it is made to; an end (EOS) follows each document.
        cache: a directory, there or not.

    Returns:
        The corpus's directory in the cache, named after all that its tokens depend on.

    Raises:
        BoschError: a source cannot be read, there is no text in it, the tokenizer has no EOS, or the cache cannot be
            written; the cache is then as it was.
    """
    from filelock import FileLock

    if tokenizer.eos_token_id is None:
        raise BoschError("the tokenizer has no end-of-text token to put between documents; expected one that has")
    corpus = dataclasses.replace(corpus, sources=tuple(source.pinned() for source in corpus.sources))
    identity = {
        "sources": [source.identity() for source in corpus.sources],
        "max_tokens": corpus.max_tokens,
        "tokenizer": _tokenizer_hash(tokenizer),
    }
    fingerprint = hashlib.sha256(json.dumps([CORPUS_SCHEMA, identity], sort_keys=True).encode()).hexdigest()
    path = cache / fingerprint[:32]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"{path.name}.lock"):
            if not path.is_dir():  # it appears by one rename, when it is complete
                with _partial_directory(cache / f".{path.name}.partial") as partial:
                    counts = _write_tokens(corpus, tokenizer, partial)
                    locations = [source.location for source in corpus.sources]
                    write_json(
                        partial / "corpus.json",
                        {"schema": CORPUS_SCHEMA, **counts, "locations": locations, "identity": identity},
                    )
                    partial.rename(path)
    except OSError as error:
        raise BoschError(f"cannot write the cache of tokens {cache}: {error.strerror or error}") from error
    return path


def open_corpus(
    path: Path, length: int, *, documents_apart: bool = False, answers_only: bool = False
) -> PackedSequences:
    """The sequences of a prepared corpus; the files are mapped, not read.

    Args:
        path: what `prepare_corpus` returned.
        length: N, in tokens, at least 3.
        documents_apart: see `PackedSequences`.
        answers_only: of documents that have an answer, only that is learned.

    Raises:
        BoschError: it is no corpus, it is damaged, or it has not one whole sequence.
    """
    if type(length) is not int or length < 3:
        raise BoschError(f"sequences must be integers of at least 3 tokens long, got {length!r}")
    data = corpus_facts(path)
    tokens = _map(path / "tokens.u32", np.dtype("<u4"), data["num_tokens"])
    starts = _map(path / "documents.i64", np.dtype("<i8"), data["num_documents"])
    if len(tokens) < length:
        raise BoschError(
            f"the corpus has {len(tokens)} tokens, not one sequence of {length}; give more text or shorter sequences"
        )
    targets = _map(path / "answers.i64", np.dtype("<i8"), data["num_documents"]) if answers_only else starts
    return PackedSequences(tokens, starts, targets, length, documents_apart, data["largest_id"])


def corpus_facts(path: Path) -> dict[str, Any]:
    """What `corpus.json` says: `num_tokens`, `num_documents`, `largest_id`, `tokens_per_source`, `identity`.

    Raises:
        BoschError: it is not there, or not what `prepare_corpus` wrote.
    """
    try:
        data = read_json(path / "corpus.json")
    except BoschError as error:
        raise BoschError(f"{path / 'corpus.json'}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != CORPUS_SCHEMA:
        raise BoschError(f"{path} is not a corpus: expected the schema {CORPUS_SCHEMA!r} in its corpus.json")
    return data


def _map(path: Path, dtype: np.dtype, count: int) -> np.memmap:
    try:
        if path.stat().st_size == count * dtype.itemsize:
            return np.memmap(path, dtype, mode="r", shape=(count,))
    except (OSError, TypeError, ValueError):
        pass
    raise BoschError(f"{path} is damaged: expected {count} values of {dtype.itemsize} bytes; delete {path.parent}")


def _tokenizer_hash(tokenizer: "PreTrainedTokenizerBase") -> str:
    rules = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else json.dumps(tokenizer.get_vocab())
    text = f"{type(tokenizer).__name__} {tokenizer.eos_token_id} {rules}"
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def _partial_directory(path: Path) -> Iterator[Path]:
    """An empty directory, which is removed if it is still there in the end. What a killed process left gives way: the
    caller holds the lock."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write_tokens(corpus: Corpus, tokenizer: "PreTrainedTokenizerBase", directory: Path) -> dict[str, Any]:
    """Write the three files; returns what `corpus.json` says of them."""
    num_tokens, num_documents, largest_id = 0, 0, 0
    per_source = [0] * len(corpus.sources)
    with (
        (directory / "tokens.u32").open("xb") as tokens,
        (directory / "documents.i64").open("xb") as starts,
        (directory / "answers.i64").open("xb") as answers,
        tqdm(desc="tokenizing", unit="tok", unit_scale=True, file=sys.stderr, disable=not sys.stderr.isatty()) as bar,
    ):
        for index, document in _mixture(corpus, tokenizer):
            if corpus.max_tokens is not None and num_tokens >= corpus.max_tokens:
                break
            _append(tokens, document.ids, "<u4")
            _append(starts, [num_tokens], "<i8")
            _append(answers, [num_tokens + document.answer_start], "<i8")
            num_tokens += len(document.ids)
            num_documents += 1
            per_source[index] += len(document.ids)
            largest_id = max(largest_id, *document.ids)
            bar.update(len(document.ids))
    if not num_tokens:
        names = ", ".join(source.location for source in corpus.sources)
        raise BoschError(f"there is no text in {names}; expected at least one document that is not empty")
    counts = {"num_tokens": num_tokens, "num_documents": num_documents, "largest_id": largest_id}
    return {**counts, "tokens_per_source": per_source}


def _append(file: BinaryIO, values: list[int], dtype: str) -> None:
    file.write(np.asarray(values, dtype=dtype).tobytes())


def _mixture(corpus: Corpus, tokenizer: "PreTrainedTokenizerBase") -> Iterator[tuple[int, Document]]:
    """Documents, each with the number of its source, in the order of the corpus."""
    streams = [source.documents(tokenizer) for source in corpus.sources]
    num_tokens = [0] * len(streams)
    while True:
        index = min(range(len(streams)), key=lambda index: num_tokens[index] / corpus.sources[index].weight)
        document = next(streams[index], None)
        if document is None:
            return
        num_tokens[index] += len(document.ids)
        yield index, document

"""Where text comes from: files, directories of them, and data sets of the Hugging Face hub; read as data, one document
after the other, never all at once; and a document as tokens."""

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bosch.common.files import parse_line
from bosch.common.lookup import import_extra
from bosch.errors import BoschError

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One kind of text.

    Args:
        location: a file, a directory, or a data set's hub id. A file that ends in `.txt` or `.md` is one document, in
            `.jsonl` one object a line, in `.parquet` a table. Of a directory, all such files beneath it are read, in
            the order of their paths.
        field: of objects, tables and data sets: what holds the text.
        weight: its share of a mixture, in tokens, as a number in proportion to the other sources' weights.
        split: of a hub's data set.
        subset: the name of a hub's data set within its repository, if it has several.
        revision: a commit of the hub; by default the newest one, which is looked up.

    Raises:
        BoschError: the weight is not a positive number.
    """

    location: str
    field: str = "text"
    weight: float = 1.0
    split: str = "train"
    subset: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.weight, bool) or not (math.isfinite(self.weight) and self.weight > 0):
            raise BoschError(f"the weight of {self.location} must be a positive number, got {self.weight!r}")

    def pinned(self) -> "Source":
        """The same source, a hub's data set at one commit.

        Raises:
            BoschError: the hub has no such data set, or cannot be asked.
        """
        if _local(self.location) or (self.revision and re.fullmatch("[0-9a-f]{40}", self.revision)):
            return self
        from huggingface_hub import HfApi

        try:
            commit = HfApi().dataset_info(self.location, revision=self.revision, timeout=10).sha
        except Exception as error:  # whatever the HTTP library of the day raises
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BoschError(
                f"{self.location!r} is neither a file, nor a directory, nor a data set to be had from the hub: {reason}"
            ) from error
        return dataclasses.replace(self, revision=commit)

    def identity(self) -> dict[str, Any]:
        """What the text depends on, as plain data: of files their content, wherever they lie; of a hub its commit.

        Raises:
            BoschError: a file cannot be read.
        """
        if not _local(self.location):
            return dataclasses.asdict(self)
        return {"files": [_hash(path) for path in _files(self.location)], "field": self.field, "weight": self.weight}

    def documents(self, tokenizer: "PreTrainedTokenizerBase") -> Iterator[Document]:
        """One for each text; texts without a token are passed over.

        Raises:
            BoschError: something cannot be read, is not UTF-8 or not JSON, or lacks the field.
        """
        if _local(self.location):
            read = (_read(path, self.field) for path in _files(self.location))
            return tokenize_texts(itertools.chain.from_iterable(read), tokenizer)
        return tokenize_texts(_read_hub(self), tokenizer)


def _local(location: str) -> bool:
    path = Path(location).expanduser()
    looks_like_a_path = location.startswith((".", "/", "~")) or location.count("/") > 1 or path.suffix in READERS
    if looks_like_a_path and not path.exists():
        raise BoschError(f"no such file or directory: {location}")
    return path.exists()


def _files(location: str) -> list[Path]:
    path = Path(location).expanduser()
    if not path.is_dir():
        if path.suffix not in READERS:
            raise BoschError(f"{location} is of no known kind; expected a file that ends in {', '.join(READERS)}")
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in READERS and file.is_file())
    if not files:
        raise BoschError(f"{location} holds no text; expected files that end in {', '.join(READERS)}")
    return files


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"{path.suffix} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise BoschError(f"{path}: cannot read it: {error.strerror or error}") from None


def _read(path: Path, field: str) -> Iterator[str]:
    try:
        yield from READERS[path.suffix](path, field)
    except OSError as error:
        raise BoschError(f"{path}: cannot read it: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BoschError(f"{path}: not UTF-8 text: {error.reason}") from None


def _read_text(path: Path, field: str) -> Iterator[str]:
    yield path.read_text(encoding="utf-8")


def _read_json_lines(path: Path, field: str) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _take(parse_line(path, number, line), field, f"{path}, line {number}")


def _read_parquet(path: Path, field: str) -> Iterator[str]:
    parquet = import_extra("pyarrow.parquet", "reading Parquet", "train")
    arrow = import_extra("pyarrow", "reading Parquet", "train")
    try:
        table = parquet.ParquetFile(path)
        if field not in table.schema_arrow.names:
            raise BoschError(f"{path} has no column {field!r}; it has: {', '.join(table.schema_arrow.names)}")
        for batch in table.iter_batches(batch_size=256, columns=[field]):
            for value in batch.column(0).to_pylist():
                yield _take({field: value}, field, str(path))
    except arrow.ArrowException as error:
        raise BoschError(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from None


def _read_hub(source: Source) -> Iterator[str]:
    datasets = import_extra("datasets", f"the data set {source.location!r} of the hub", "train")
    try:
        rows = iter(
            datasets.load_dataset(
                source.location, source.subset, split=source.split, revision=source.revision, streaming=True
            )
        )
        first = next(rows, None)
    except Exception as error:  # an error of its own for every missing split, subset, script or connection
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BoschError(f"cannot read the data set {source.location!r}: {reason}") from error
    for row in itertools.chain([] if first is None else [first], rows):
        yield _take(row, source.field, source.location)


def _take(data: Any, field: str, place: str) -> str:
    if not isinstance(data, dict) or field not in data:
        found = ", ".join(map(str, data)) if isinstance(data, dict) else repr(data)[:40]
        raise BoschError(f"{place}: there is no field {field!r}; found {found}")
    if not isinstance(data[field], str):
        raise BoschError(f"{place}: the field {field!r} must be a text, found {data[field]!r:.40}")
    return data[field]


READERS: dict[str, Callable[[Path, str], Iterator[str]]] = {
    ".txt": _read_text,
    ".md": _read_text,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}

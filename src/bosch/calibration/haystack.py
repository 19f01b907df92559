"""What the needles lie in.

A haystack is an endless sequence of segments: needles may lie between two segments, never inside one. A segment is made
of units, the pieces in which a text is measured off to fit a length; only a text's last segment may be cut short.

| haystack | segment | unit |
| --- | --- | --- |
| noise | RULER's line of five sentences | one of the sentences |
| prose | a sentence | a word |
| needles | a line | the line |
"""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from bosch.errors import BoschError

Segment = Sequence[str]

NOISE = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")

# A sentence ends at its full stop, with the quotes and brackets closed after it, where the next word has a capital.
_SENTENCE_END = re.compile(r"""(?<=[.!?])(["')\]]*)\s+(?=["'(\[]*[A-Z])""")


def cut(segments: Iterable[Segment], num_units: int) -> list[str]:
    """The first units of a haystack, as the texts of its segments; the last may be cut short."""
    texts = []
    for segment in segments:
        if num_units <= 0:
            break
        texts.append(" ".join(segment[:num_units]))
        num_units -= len(segment)
    return texts


def insert(texts: Sequence[str], needles: Sequence[str], depths: Sequence[float]) -> list[str]:
    """Put needles between segments, each nearest to its depth: 0 before the first, 1 after the last."""
    placed = list(texts)
    for depth, needle in sorted(zip(depths, needles, strict=True), reverse=True):
        placed.insert(round(depth * len(texts)), needle)
    return placed


def prose_segments(sentences: Sequence[Segment], start: int) -> Iterator[Segment]:
    """The sentences of a text from one of them on, and round again when the text ends."""
    return itertools.chain(sentences[start:], itertools.cycle(sentences))


@functools.lru_cache(maxsize=2)
def split_prose(text: str) -> tuple[Segment, ...]:
    """The sentences of a text, each as its words.

    Raises:
        BoschError: the text has no words.
    """
    marked = _SENTENCE_END.sub("\\1\n", " ".join(text.split()))
    sentences = tuple(tuple(sentence.split()) for sentence in marked.split("\n") if sentence)
    if not sentences:
        raise BoschError(f"the haystack text has no words, got {text[:20]!r}; give a text of some sentences")
    return sentences


@functools.cache
def shipped_prose() -> str:
    """The text that the package brings along: Jane Austen, "Persuasion" (public domain), without the file's header."""
    lines = files(__package__).joinpath("data/prose.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))

"""F1 over the words that answer and reference share: LongBench's score of question answering."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from bosch.evaluation.metrics.chinese_words import chinese_words

CHINESE_MARKS = frozenset(
    chr(code)
    for first, last in (
        (0x2013, 0x2014),  # dashes
        (0x2018, 0x2019),  # single quotation marks
        (0x201B, 0x201F),  # more of them, and the double ones
        (0x2026, 0x2027),  # ellipsis and hyphenation point
        (0x3001, 0x3003),  # comma, full stop, ditto
        (0x300B, 0x3011),  # brackets, without the one that opens a title
        (0x3014, 0x301F),  # more brackets and quotation marks
        (0x3030, 0x3030),  # wavy dash
        (0x303E, 0x303F),  # half fill space
        (0xFE4F, 0xFE4F),  # wavy low line
        (0xFF01, 0xFF0D),  # wide forms of the ASCII marks
        (0xFF0F, 0xFF0F),
        (0xFF1A, 0xFF20),
        (0xFF3B, 0xFF40),
        (0xFF5B, 0xFF64),  # and narrow forms of the Chinese ones
    )
    for code in range(first, last + 1)
)
"""The marks that LongBench drops from Chinese words. It keeps some, such as the middle dot, and, of the brackets around
a title, the one that opens."""

_NO_ASCII_MARKS = str.maketrans("", "", string.punctuation)
_NO_MARKS = str.maketrans("", "", string.punctuation + "".join(CHINESE_MARKS))


def token_f1(answer: str, references: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of the answer's English words, repeated words counted as often as shared.

    Words are in lower case, without ASCII punctuation (which also joins what it parted: "U.S." is "us"), and without
    the articles a, an and the. Without a shared word, so also for an empty answer to an empty reference, it is 0.
    """
    words = _english_words(answer)
    return max(_f1(words, _english_words(reference)) for reference in references)


def token_f1_zh(answer: str, references: Sequence[str]) -> float:
    """The same over Chinese words: in lower case, and without ASCII and Chinese punctuation and white space.

    Raises:
        BoschError: jieba is not installed.
    """
    words = _plain_chinese_words(answer)
    return max(_f1(words, _plain_chinese_words(reference)) for reference in references)


def _english_words(text: str) -> list[str]:
    """Words in lower case, without ASCII punctuation and articles."""
    return re.sub(r"\b(?:a|an|the)\b", " ", text.lower().translate(_NO_ASCII_MARKS)).split()


def _plain_chinese_words(text: str) -> list[str]:
    # The text is cut before it is made plain: marks keep words apart that would otherwise be cut anew.
    words = ("".join(word.lower().translate(_NO_MARKS).split()) for word in chinese_words(text))
    return [word for word in words if word]


def _f1(words: list[str], reference: list[str]) -> float:
    num_shared = (Counter(words) & Counter(reference)).total()
    return 2 * num_shared / (len(words) + len(reference)) if num_shared else 0.0

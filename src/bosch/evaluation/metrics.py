"""What counts of an answer to a few-shot task: a model that has learnt the form goes on with an example of its own."""

import contextlib
import difflib
import functools
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bosch.common.lookup import import_extra
from bosch.errors import BoschError


def first_line(answer: str) -> str:
    """The first line that is not empty; a line of spaces is not empty."""
    return answer.lstrip("\n").partition("\n")[0]


def chinese_words(text: str) -> list[str]:
    """The words of a text in order, as jieba's default mode cuts them; together they are the text again.

    Args:
        text: any text; runs of Latin letters and digits stay whole, white space and marks are words of their own.

    Raises:
        BoschError: jieba is not installed.
    """
    return _segmenter().lcut(text)


@functools.cache
def _segmenter() -> Any:
    """A segmenter with jieba's own dictionary alone, whatever words others have added to the shared one."""
    segmenter = import_extra("jieba", "cutting Chinese into words", "eval").Tokenizer()
    # Left to itself, jieba reads its dictionary from a marshal file in the temporary directory, which is everybody's.
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


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


def rouge_l(answer: str, references: Sequence[str]) -> float:
    """F1 of the union of longest common subsequences, sentence by sentence; 0 where a side has no sentence.

    As the library has it, sentences end at an ASCII full stop, case and punctuation count, a word counts once however
    often it occurs, and white space after the last full stop makes an empty word. So other implementations of ROUGE-L,
    such as `rouge-score`, give other values. LongBench's own scorer gives 0 where the library meets Python's recursion
    limit, at two sentences of about a thousand words together; here such a pair gets its score.

    Raises:
        BoschError: `rouge` is not installed.
    """
    return max(_rouge_l(answer, reference) for reference in references)


def rouge_l_zh(answer: str, references: Sequence[str]) -> float:
    """ROUGE-L over Chinese words; the Chinese full stop ends no sentence.

    Raises:
        BoschError: jieba or `rouge` is not installed.
    """
    return rouge_l(" ".join(chinese_words(answer)), [" ".join(chinese_words(reference)) for reference in references])


def _rouge_l(answer: str, reference: str) -> float:
    scorer = import_extra("rouge", "ROUGE-L", "eval").Rouge(metrics=["rouge-l"], stats=["f"])
    with _deeper_recursion(len(answer.split()) + len(reference.split())):
        try:
            return scorer.get_scores(answer, reference)[0]["rouge-l"]["f"]
        except ValueError:  # a text that is empty or all full stops
            return 0.0


@contextlib.contextmanager
def _deeper_recursion(num_frames: int) -> Iterator[None]:
    """The library walks back through its table one call a word."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + num_frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def classification(answer: str, references: Sequence[str], classes: Sequence[str]) -> float:
    """1 / n where the answer names the right class among n, else 0; case counts.

    A class is named where the answer holds its name anywhere. A class whose name lies within the right one's is not
    counted as named, except right after another such class in the order of the classes: the published scorer drops
    them from the list that it is walking along, and so steps over the next.

    Args:
        answer: the text that a model generated.
        references: names of right classes.
        classes: names of all classes, in the order of the data.

    Raises:
        BoschError: there are no classes.
    """
    if not classes:
        raise BoschError("a classification needs the names of all classes, got none")
    named = [name for name in classes if name in answer]
    return max(_share(reference, named) for reference in references)


def _share(reference: str, named: list[str]) -> float:
    counted = []
    steps_over = False
    for name in named:
        is_within = name != reference and name in reference
        if steps_over or not is_within:
            counted.append(name)
        steps_over = is_within and not steps_over
    return 1 / len(counted) if reference in counted else 0.0


def code_similarity(answer: str, references: Sequence[str]) -> float:
    """Similarity of the answer's first line of code to the reference, in whole hundredths.

    The line is the first one, empty lines at the beginning left out, without a backtick, a `#` and a `//`: neither a
    fence nor a comment. The similarity is 2 M / T, M the characters in matching blocks and T all of both lines, as
    Python's `difflib` finds them; that is what fuzzywuzzy, which LongBench names, falls back on. With a library for
    Levenshtein distances installed beside it, fuzzywuzzy gives other, mostly higher values, and lm-evaluation-harness
    also leaves out lines of spaces.
    """
    lines = answer.lstrip("\n").split("\n")
    line = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    return max(_similarity(line, reference) for reference in references)


def _similarity(line: str, reference: str) -> float:
    return round(100 * difflib.SequenceMatcher(None, line, reference).ratio()) / 100


def count(answer: str, references: Sequence[str]) -> float:
    """Share of the numbers in the answer that are the reference's, digit by digit; 0 without a number."""
    return max(_share_of(reference, answer) for reference in references)


def retrieval(answer: str, references: Sequence[str]) -> float:
    """Share of the numbers in the answer that are the paragraph's in the reference, as in "Paragraph 7".

    Raises:
        BoschError: a reference names no paragraph.
    """
    return _retrieval(answer, references, "Paragraph ")


def retrieval_zh(answer: str, references: Sequence[str]) -> float:
    """The same for Chinese references, as in "段落7".

    Raises:
        BoschError: a reference names no paragraph.
    """
    return _retrieval(answer, references, "段落")


def _retrieval(answer: str, references: Sequence[str], noun: str) -> float:
    return max(_share_of(_paragraph(reference, noun), answer) for reference in references)


def _paragraph(reference: str, noun: str) -> str:
    found = re.search(rf"{noun}(\d+)", reference)
    if found is None:
        raise BoschError(f"the reference {reference!r:.60} names no paragraph; expected one such as '{noun}7'")
    return found[1]


def _share_of(number: str, answer: str) -> float:
    numbers = re.findall(r"\d+", answer)
    return numbers.count(number) / len(numbers) if numbers else 0.0


_NOT_COMPARED = (",", r"\$", r"(?s).*#### ", r"\.$")


def strict_number(answer: str, references: Sequence[str]) -> float:
    """1 where the first number after `#### ` is the reference's, else 0.

    Args:
        answer: the text that a model generated.
        references: published answers, which end with `#### ` and the number, or bare numbers.
    """
    found = re.search(r"#### (-?[0-9.,]+)", answer)
    return _is_right(found[1], references) if found else 0.0


def _is_right(number: str, references: Sequence[str]) -> float:
    return float(_compared(number) in map(_compared, references))


def _compared(text: str) -> str:
    """What is compared of a number: no thousands separators, no dollar sign, no full stop at the end."""
    for pattern in _NOT_COMPARED:
        text = re.sub(pattern, "", text)
    return text.lower()

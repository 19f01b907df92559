"""ROUGE-L as LongBench takes it, from the library `rouge`: its score of summaries and of Chinese open questions."""

import contextlib
import sys
from collections.abc import Iterator, Sequence

from bosch.evaluation.metrics.chinese_words import chinese_words
from bosch.extras import import_extra


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

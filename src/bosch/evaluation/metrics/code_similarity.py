"""How near a completed line of code is to the true one: LongBench's score of lcc and repobench-p."""

import difflib
from collections.abc import Sequence


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

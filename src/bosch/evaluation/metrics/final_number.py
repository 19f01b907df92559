"""Whether the number that an answer ends with is right: the two scores that lm-evaluation-harness gives on GSM8K."""

import re
from collections.abc import Sequence

_NOT_COMPARED = (",", r"\$", r"(?s).*#### ", r"\.$")


def strict_number(answer: str, references: Sequence[str]) -> float:
    """1 where the first number after `#### ` is the reference's, else 0.

    Args:
        answer: the text that a model generated.
        references: published answers, which end with `#### ` and the number, or bare numbers.
    """
    found = re.search(r"#### (-?[0-9.,]+)", answer)
    return _is_right(found[1], references) if found else 0.0


def flexible_number(answer: str, references: Sequence[str]) -> float:
    """1 where the last number anywhere in the answer is the reference's, else 0.

    What counts as a number is any run of at least two of the digits, `$`, `.` and `,`, or a single digit: so an answer
    that ends in an ellipsis has none.
    """
    found = re.findall(r"-?[$0-9.,]{2,}|-?[0-9]+", answer)
    return _is_right(found[-1], references) if found else 0.0


def _is_right(number: str, references: Sequence[str]) -> float:
    return float(_compared(number) in map(_compared, references))


def _compared(text: str) -> str:
    """What is compared of a number: no thousands separators, no dollar sign, no full stop at the end."""
    for pattern in _NOT_COMPARED:
        text = re.sub(pattern, "", text)
    return text.lower()

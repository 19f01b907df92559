"""How much of what an answer counts or points at is right: LongBench's scores of its synthetic tasks."""

import re
from collections.abc import Sequence

from bosch.errors import BoschError


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

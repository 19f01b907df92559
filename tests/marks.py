"""Which cases of a test are for the slow suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(number: int, values: Iterable[Any]) -> list[Any]:
    """All values, or tuples of them, those after the first ones for the slow suite."""
    listed = list(values)
    later = (value if isinstance(value, tuple) else (value,) for value in listed[number:])
    return [*listed[:number], *(pytest.param(*value, marks=pytest.mark.slow) for value in later)]

"""Which cases of a test are for the slow suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(number: int, values: Iterable[Any]) -> list[Any]:
    """All values, those after the first ones for the slow suite."""
    return [
        value if index < number else pytest.param(value, marks=pytest.mark.slow) for index, value in enumerate(values)
    ]

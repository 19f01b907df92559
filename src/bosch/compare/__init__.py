"""Which method picks the best heads for a model: every method at every ratio, on the same examples."""

from bosch.compare.directory import ComparisonDirectory
from bosch.compare.settings import CompareSettings

__all__ = ["CompareSettings", "ComparisonDirectory"]

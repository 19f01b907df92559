"""What a hybrid saves: speed, memory and cache against the context length (paper C.4, Figures 5 and 6)."""

from bosch.bench.directory import BenchDirectory
from bosch.bench.settings import BenchSettings

__all__ = ["BenchDirectory", "BenchSettings"]

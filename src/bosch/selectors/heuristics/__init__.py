"""Layer heuristics (paper 3.4): patterns of whole layers that look at no model."""

from bosch.selectors.heuristics.bme import bme
from bosch.selectors.heuristics.intr import intr
from bosch.selectors.heuristics.rand import rand

__all__ = ["bme", "intr", "rand"]

"""Methods that pick which units slide. A new one is a function in a file of its own and a line here."""

from bosch.selectors.bosch import bosch
from bosch.selectors.contract import Selection, Selector
from bosch.selectors.progressive import progressive
from bosch.selectors.random_units import random_mask

__all__ = ["SELECTORS", "Selection", "Selector", "random_mask"]

SELECTORS: dict[str, Selector] = {
    "progressive": progressive,
    "bosch": bosch,
}

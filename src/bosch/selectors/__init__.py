"""Methods that pick which units slide. A new one is a function in a file of its own and a line here."""

from bosch.selectors.bosch import bosch, bosch_layer, bosch_multi, bosch_single
from bosch.selectors.contract import Problem, Selection, Selector
from bosch.selectors.floating import floating
from bosch.selectors.heuristics import bme, intr, rand
from bosch.selectors.progressive import progressive
from bosch.selectors.random_units import random_mask, random_units
from bosch.selectors.static import APL, DCAM, DUO, FISHER, LAZY, NLL, NLL_LAYER, PROXY, QADA, RAZOR

__all__ = ["SELECTORS", "Problem", "Selection", "Selector", "random_mask"]

SELECTORS: dict[str, Selector] = {
    "random": random_units,
    "rand": rand,
    "bme": bme,
    "intr": intr,
    "dcam": DCAM,
    "apl": APL,
    "proxy": PROXY,
    "qada": QADA,
    "razor": RAZOR,
    "fisher": FISHER,
    "lazy": LAZY,
    "nll": NLL,
    "nll-layer": NLL_LAYER,
    "duo": DUO,
    "bosch-single": bosch_single,
    "bosch-multi": bosch_multi,
    "bosch-layer": bosch_layer,
    "bosch": bosch,
    "progressive": progressive,
    "floating": floating,
}
"""By what a user calls them; the cheap ones first."""

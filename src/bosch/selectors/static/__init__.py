"""Static methods (paper B.3): every unit gets a score once, and at each ratio the most local ones slide."""

from bosch.selectors.contract import Measured
from bosch.selectors.static.apl import APL
from bosch.selectors.static.dcam import DCAM
from bosch.selectors.static.duo import DUO
from bosch.selectors.static.fisher import FISHER
from bosch.selectors.static.lazy import LAZY
from bosch.selectors.static.measuring import measure
from bosch.selectors.static.nll import NLL, NLL_LAYER
from bosch.selectors.static.proxy import PROXY
from bosch.selectors.static.qada import QADA
from bosch.selectors.static.ranking import Ranking
from bosch.selectors.static.razor import RAZOR

__all__ = [
    "APL",
    "DCAM",
    "DUO",
    "FISHER",
    "LAZY",
    "NLL",
    "NLL_LAYER",
    "PROXY",
    "QADA",
    "RAZOR",
    "Measured",
    "Ranking",
    "measure",
]

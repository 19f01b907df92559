"""BOSCH and its ablations (paper 2.2 and 3.4)."""

from bosch.selectors.bosch.layer import bosch_layer
from bosch.selectors.bosch.multi import bosch_multi
from bosch.selectors.bosch.single import bosch_single
from bosch.selectors.bosch.three_stages import bosch

__all__ = ["bosch", "bosch_layer", "bosch_multi", "bosch_single"]

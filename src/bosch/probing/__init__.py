"""What the heads of the full model attend to, read block by block, so that no T x T map is ever held."""

from bosch.probing.blocks import AttentionBlock
from bosch.probing.gather import gather, gather_gradients
from bosch.probing.statistic import Statistic, Subject

__all__ = ["AttentionBlock", "Statistic", "Subject", "gather", "gather_gradients"]

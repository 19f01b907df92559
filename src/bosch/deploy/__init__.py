"""A mask made real: reordered weights, a cache that is small, and checkpoints that load everywhere.

Importing this lets `AutoModelForCausalLM.from_pretrained` load exported hybrids.
"""

from bosch.deploy.hybridize import hybridize, mask_of, register_auto_classes, restore_full_attention
from bosch.deploy.modeling_bosch import BoschCache

__all__ = ["BoschCache", "hybridize", "mask_of", "restore_full_attention"]

register_auto_classes()

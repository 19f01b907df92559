"""Choose, head by head, which attention heads of a pretrained LLM can live with a sliding window."""

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask

__version__ = "0.1.0"

__all__ = ["BoschError", "HeadLayout", "HeadMask", "__version__"]

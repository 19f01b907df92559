"""Choose, head by head, which attention heads of a pretrained LLM can live with a sliding window."""

import importlib
from typing import TYPE_CHECKING, Any

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.version import __version__

if TYPE_CHECKING:
    from bosch.api import compare, evaluate, export, hybridize, methods, search
    from bosch.models import load_model

__all__ = [
    "BoschError",
    "HeadLayout",
    "HeadMask",
    "__version__",
    "compare",
    "evaluate",
    "export",
    "hybridize",
    "load_model",
    "methods",
    "search",
]

_LAZY = {
    **dict.fromkeys(("compare", "evaluate", "export", "hybridize", "methods", "search"), "bosch.api"),
    "load_model": "bosch.models",
}


def __getattr__(name: str) -> Any:
    """Names whose modules are imported when they are first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__

"""Libraries that only some trainings need: imported where they are used, and named when they are missing."""

import importlib
from typing import Any

from bosch.errors import BoschError


def import_extra(name: str, purpose: str) -> Any:
    """A module of the extra `train`.

    Args:
        name: of the module.
        purpose: what it is needed for, to begin the message with.

    Raises:
        BoschError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BoschError(
            f"{purpose} needs {name}, which cannot be imported ({error}); expected the extra that brings it: "
            "pip install 'bosch-swa[train]'"
        ) from error

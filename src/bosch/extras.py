"""Libraries that only some work needs: imported where they are used, and named when they are missing."""

import importlib
from typing import Any

from bosch.errors import BoschError


def import_extra(name: str, purpose: str, extra: str) -> Any:
    """A module that an extra of the package brings.

    Args:
        name: of the module.
        purpose: what it is needed for, to begin the message with.
        extra: of `bosch-swa`.

    Raises:
        BoschError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BoschError(
            f"{purpose} needs {name}, which cannot be imported ({error}); expected the extra that brings it: "
            f"pip install 'bosch-swa[{extra}]'"
        ) from error

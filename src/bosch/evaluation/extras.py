"""Libraries that only some scores need: imported where they are used, and named when they are missing."""

import importlib
from typing import Any

from bosch.errors import BoschError


def import_extra(name: str) -> Any:
    """A module of the extra `eval`.

    Raises:
        BoschError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BoschError(
            f"this score needs {name}, which cannot be imported ({error}); expected the extra that brings it: "
            "pip install 'bosch-swa[eval]'"
        ) from error

"""Reading the log of a training, for which nothing of torch is needed."""

import json
from pathlib import Path
from typing import Any

from bosch.errors import BoschError

ORIGINAL = "original "
"""Before the names of scores of the model with all heads full, which are measured once, at the beginning."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, for curves; a last line that a kill has cut is left out.

    Raises:
        BoschError: it cannot be read, or is not a log.
    """
    try:
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError) as error:
        raise BoschError(f"{path}: not the log of a training: {error}") from None
    for line in lines:
        if not isinstance(line, dict) or type(line.get("step")) is not int or type(line.get("tokens")) is not int:
            raise BoschError(f"{path}: not the log of a training: expected step and tokens in each line")
    return lines

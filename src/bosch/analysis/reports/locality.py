"""How local the units look to a static method, against what a mask localizes."""

from pathlib import Path

import bosch
from bosch.analysis.locality import LocalityChoice
from bosch.analysis.output import claim
from bosch.analysis.pictures import draw_locality
from bosch.files import write_json
from bosch.tables import write_csv

LOCALITY_SCHEMA = "bosch.locality/1"
FILES = ("locality.json", "locality.csv", "locality.png", "locality.svg")


def write_locality(
    found: LocalityChoice, scorer: str, chooser: str, directory: Path, *, overwrite: bool = False
) -> str:
    """Write every unit's score and fate as CSV, both summaries as JSON, and the picture.

    Args:
        found: scores and mask.
        scorer: the method that the scores are of.
        chooser: what the mask is called.
        directory: where to.
        overwrite: replace files of these names.

    Returns:
        The summaries in words.

    Raises:
        BoschError: the files are there already.
    """
    claim(directory, FILES, overwrite=overwrite)
    rows = (
        (rank, *unit, found.scores[unit], int(not found.mask[unit])) for rank, unit in enumerate(found.ranking, start=1)
    )
    write_csv(directory / "locality.csv", ["rank", "layer", "head", "score", "sliding"], rows)
    summary = {
        "schema": LOCALITY_SCHEMA,
        "bosch": bosch.__version__,
        "scores": scorer,
        "mask": chooser,
        "ratio": found.mask.ratio,
        "agreement": found.agreement,
        "separation": found.separation,
    }
    write_json(directory / "locality.json", summary)
    draw_locality(found, scorer, chooser, directory / "locality")
    return _words(found, scorer, chooser)


def _words(found: LocalityChoice, scorer: str, chooser: str) -> str:
    if found.agreement is None or found.separation is None:
        return f"{chooser} makes no choice: {found.mask}"
    return (
        f"{scorer} would localize {found.agreement:.0%} of the units that {chooser} localizes "
        f"(a random ranking {found.mask.ratio:.0%}); a sliding unit looks more local than a full one "
        f"with probability {found.separation:.2f}"
    )

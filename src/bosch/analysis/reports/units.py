"""Which layers and units each mask localizes."""

from collections.abc import Mapping
from pathlib import Path

import bosch
from bosch.analysis.localized import votes
from bosch.analysis.output import claim
from bosch.analysis.pictures import draw_layers, draw_units
from bosch.files import write_json
from bosch.heads import HeadMask
from bosch.tables import text_table, write_csv

UNITS_SCHEMA = "bosch.units/1"
FILES = ("units.json", "units.csv", "layers.csv", "units.png", "units.svg", "layers.png", "layers.svg")


def write_units(masks: Mapping[str, HeadMask], directory: Path, *, overwrite: bool = False) -> str:
    """Write every choice as JSON and CSV, the counts per layer as CSV, and a map of each.

    Args:
        masks: by name, of one layout; at least one.
        directory: where to.
        overwrite: replace files of these names.

    Returns:
        The counts per layer as a table.

    Raises:
        BoschError: the files are there already.
    """
    claim(directory, FILES, overwrite=overwrite)
    counts = votes(masks)
    chosen = {
        name: {"ratio": mask.ratio, "per_layer": mask.localized_per_layer, "localized": sorted(mask.localized)}
        for name, mask in masks.items()
    }
    agreed = [[*unit, count] for unit, count in counts.items()]
    write_json(
        directory / "units.json",
        {"schema": UNITS_SCHEMA, "bosch": bosch.__version__, "masks": chosen, "votes": agreed},
    )
    rows = ([*unit, *(int(not mask[unit]) for mask in masks.values()), count] for unit, count in counts.items())
    write_csv(directory / "units.csv", ["layer", "head", *masks, "votes"], rows)
    layers = layer_rows(masks)
    write_csv(directory / "layers.csv", ["layer", "units", *masks], layers)
    draw_layers(masks, directory / "layers")
    draw_units(masks, directory / "units")
    return "\n".join(text_table(["layer", "units", *masks], [[str(cell) for cell in row] for row in layers]))


def layer_rows(masks: Mapping[str, HeadMask]) -> list[tuple[int, ...]]:
    """For each layer its number, its units, and how many of them each mask localizes."""
    units = next(iter(masks.values())).layout.units_per_layer
    counts = zip(*(mask.localized_per_layer for mask in masks.values()), strict=True)
    return [(layer, units[layer], *row) for layer, row in enumerate(counts)]

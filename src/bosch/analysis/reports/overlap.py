"""Distances between masks: a matrix for one model, or one in each triangle for two (paper, Figures 2, 7 and 8)."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bosch
from bosch.analysis.masks import MaskFile, by_ratio, model_name, name_masks
from bosch.analysis.output import claim
from bosch.analysis.overlap import Matrix, chance_distance, distance_matrix
from bosch.analysis.pictures import Panel, draw_overlap
from bosch.errors import BoschError
from bosch.files import write_json
from bosch.heads import HeadMask
from bosch.tables import text_table, write_csv

OVERLAP_SCHEMA = "bosch.overlap/1"
FILES = ("overlap.json", "overlap.csv", "overlap.png", "overlap.svg")

Masks = Mapping[str, HeadMask]


@dataclasses.dataclass(frozen=True)
class Model:
    """The masks of one model.

    Args:
        name: of the model.
        groups: masks by name, one group a heat map.
    """

    name: str
    groups: tuple[Masks, ...]


def write_overlap(
    lower: Sequence[MaskFile],
    upper: Sequence[MaskFile],
    directory: Path,
    *,
    split_by_ratio: bool = False,
    overwrite: bool = False,
) -> str:
    """Write the distances as JSON and CSV, and the heat map.

    Args:
        lower: masks of one model.
        upper: masks of the same names of another model, for the upper triangle; none to show one model in both.
        directory: where to.
        split_by_ratio: one heat map for each ratio, in place of one for all masks.
        overwrite: replace files of these names.

    Returns:
        The heat maps as tables.

    Raises:
        BoschError: fewer than two masks in a heat map, names or ratios of the two models that do not match, or files
            that are there already.
    """
    first = _group(lower, split_by_ratio)
    second = _align(first, _group(upper, split_by_ratio)) if upper else first
    for group in first.groups:
        if len(group) < 2:
            raise BoschError(f"a distance needs two masks, got only {', '.join(group)}")
    claim(directory, FILES, overwrite=overwrite)
    models = [("lower", first), ("upper", second)] if upper else [("both", first)]
    write_json(directory / "overlap.json", _data(models))
    header = ("triangle", "model", "first", "first_ratio", "second", "second_ratio", "distance")
    write_csv(directory / "overlap.csv", header, (row for triangle, model in models for row in _rows(triangle, model)))
    panels = [_panel(a, b) for a, b in zip(first.groups, second.groups, strict=True)]
    caption = f"lower triangle: {first.name}; upper triangle: {second.name}" if upper else first.name
    draw_overlap(panels, caption, directory / "overlap")
    return "\n\n".join([caption, *map(_table, panels)])


def _group(files: Sequence[MaskFile], split_by_ratio: bool) -> Model:
    groups = by_ratio(files) if split_by_ratio else [files]
    return Model(model_name(files), tuple(name_masks(group) for group in groups))


def _align(first: Model, second: Model) -> Model:
    """The second model's masks in the order of the first's.

    Raises:
        BoschError: they are not the same methods at as many ratios.
    """
    if len(first.groups) != len(second.groups):
        raise BoschError(
            f"the two triangles need masks at as many ratios; the lower has {len(first.groups)}, "
            f"the upper {len(second.groups)}"
        )
    for below, above in zip(first.groups, second.groups, strict=True):
        if below.keys() != above.keys():
            raise BoschError(
                f"the two triangles need masks of the same names; the lower has {', '.join(below)}, "
                f"the upper {', '.join(above)}"
            )
    groups = ({name: above[name] for name in below} for below, above in zip(first.groups, second.groups, strict=True))
    return Model(second.name, tuple(groups))


def _data(models: Sequence[tuple[str, Model]]) -> dict[str, Any]:
    return {
        "schema": OVERLAP_SCHEMA,
        "bosch": bosch.__version__,
        "triangles": [
            {"triangle": triangle, "model": model.name, "groups": [_group_data(group) for group in model.groups]}
            for triangle, model in models
        ],
    }


def _group_data(group: Masks) -> dict[str, Any]:
    masks = [
        {"name": name, "ratio": mask.ratio, "window": mask.shown_window, "sinks": mask.sinks, "mask": mask.key()}
        for name, mask in group.items()
    ]
    return {"masks": masks, "distances": distance_matrix(list(group.values())), "chance": _chance(group)}


def _rows(triangle: str, model: Model) -> list[tuple[str | float, ...]]:
    rows: list[tuple[str | float, ...]] = []
    for group in model.groups:
        distances = distance_matrix(list(group.values()))
        for (i, (first, a)), (j, (second, b)) in itertools.combinations(enumerate(group.items()), 2):
            rows.append((triangle, model.name, first, a.ratio, second, b.ratio, distances[i][j]))
    return rows


def _panel(lower: Masks, upper: Masks) -> Panel:
    below, above = distance_matrix(list(lower.values())), distance_matrix(list(upper.values()))
    distances: Matrix = tuple(
        tuple(above[i][j] if i < j else below[i][j] for j in range(len(below))) for i in range(len(below))
    )
    return Panel(_title(lower, upper), tuple(lower), distances)


def _title(lower: Masks, upper: Masks) -> str:
    """Ratio of the masks, and what two random ones of that ratio would have between them; nothing for mixed ratios."""
    chances = [chance for group in (lower, upper) if (chance := _chance(group)) is not None]
    if len(chances) < 2:
        return ""
    ratios = [f"{next(iter(group.values())).ratio:.3g}" for group in (lower, upper)]
    by_chance = [f"{chance:.2f}" for chance in chances]
    return f"ratio {' / '.join(dict.fromkeys(ratios))} (random masks: {' / '.join(dict.fromkeys(by_chance))})"


def _chance(group: Masks) -> float | None:
    sizes = {mask.num_localized for mask in group.values()}
    if len(sizes) > 1:
        return None
    (size,) = sizes
    return chance_distance(next(iter(group.values())).layout.num_units, size, size)


def _table(panel: Panel) -> str:
    rows = [
        [name, *("" if i == j else f"{panel.distances[i][j]:.2f}" for j in range(len(panel.names)))]
        for i, name in enumerate(panel.names)
    ]
    return "\n".join(text_table([panel.title, *panel.names], rows))

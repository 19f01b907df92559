"""Which layers and which units the methods localize."""

from collections.abc import Mapping

from bosch.heads import HeadMask, Unit


def share_per_layer(mask: HeadMask) -> tuple[float | None, ...]:
    """For each layer, the share of its units that slide; None for a layer without units."""
    counts = zip(mask.localized_per_layer, mask.layout.units_per_layer, strict=True)
    return tuple(sliding / units if units else None for sliding, units in counts)


def votes(masks: Mapping[str, HeadMask]) -> dict[Unit, int]:
    """For each unit, how many of the masks localize it. All masks are of one layout, and there is at least one."""
    layout = next(iter(masks.values())).layout
    return {unit: sum(not mask[unit] for mask in masks.values()) for unit in layout.units()}

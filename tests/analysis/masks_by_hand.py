"""Masks written down as the units that slide, and a layout in which no two numbers are alike."""

from collections.abc import Iterable

from hypothesis import strategies as st

from bosch.heads import HeadLayout, HeadMask, Unit

LAYOUT = HeadLayout((3, 0, 5, 2, 1))
"""11 units; layer 1 has none."""

WINDOW = 7


def sliding(units: Iterable[Unit], layout: HeadLayout = LAYOUT, window: int = WINDOW) -> HeadMask:
    """The mask in which just these units slide."""
    return HeadMask.all_full(layout, window).localize(units)


def masks(layout: HeadLayout = LAYOUT) -> st.SearchStrategy[HeadMask]:
    """Any mask of a layout."""
    return st.sets(st.sampled_from(list(layout.units()))).map(lambda units: sliding(units, layout))


def squeezed(text: str) -> str:
    """A table without the spaces that align its columns."""
    return " ".join(text.split())

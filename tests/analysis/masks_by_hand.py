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


@st.composite
def growing(draw: st.DrawFn, least_departed: int = 0) -> tuple[HeadMask, HeadMask]:
    """Two masks, of which the second has more sliding units, and lacks at least so many of those of the first."""
    units = draw(st.permutations(list(LAYOUT.units())))
    large = draw(st.integers(2, len(units) - least_departed))
    departed = draw(st.integers(least_departed, min(large - 1, len(units) - large)))
    kept = draw(st.integers(0 if departed else 1, large - 1 - departed))
    return sliding([*units[large - kept : large], *units[large : large + departed]]), sliding(units[:large])


def squeezed(text: str) -> str:
    """A table without the spaces that align its columns."""
    return " ".join(text.split())

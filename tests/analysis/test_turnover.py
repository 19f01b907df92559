import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from masks_by_hand import LAYOUT, growing, sliding

from bosch.analysis.turnover import Turnover
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask

TABLE_3 = {
    "1.7B": (28, 8, {(0.25, 0.5): (30, 30), (0.5, 0.75): (15, 30), (0.75, 0.875): (6, 36)}),
    "8B": (36, 8, {(0.25, 0.5): (26, 26), (0.5, 0.75): (15, 29), (0.75, 0.875): (7, 44)}),
    "14B": (40, 8, {(0.25, 0.5): (28, 28), (0.5, 0.75): (16, 31), (0.75, 0.875): (5, 31)}),
    "30B": (48, 4, {(0.25, 0.5): (29, 29), (0.5, 0.75): (16, 31), (0.75, 0.875): (6, 34)}),
}
"""The paper's: layers and KV groups (its Table 4), then T and normalized T in whole percents."""

PAIRS = [
    pytest.param(layers, groups, *ratios, *percents, id=f"{name} {ratios[0]} to {ratios[1]}")
    for name, (layers, groups, rows) in TABLE_3.items()
    for ratios, percents in rows.items()
]


def first_units(layout: HeadLayout, count: int) -> HeadMask:
    return sliding(itertools.islice(layout.units(), count), layout)


def test_worked_out_by_hand():
    """Of 11 units, 4 slide and then 9. (0, 0) departs; at most the 2 units that stay full could have."""
    smaller = sliding([(0, 0), (0, 1), (2, 0), (4, 0)])
    larger = sliding(set(LAYOUT.units()) - {(0, 0), (3, 1)})
    found = Turnover(smaller, larger)
    assert found.departed == {(0, 0)}
    assert (found.share, found.maximum, found.normalized) == (1 / 4, 2 / 4, 1 / 2)


def test_all_of_a_small_mask_may_depart():
    """2 slide, then 5 of the other 9."""
    found = Turnover(sliding([(0, 0), (0, 1)]), sliding([(2, head) for head in range(5)]))
    assert (found.share, found.maximum, found.normalized) == (1, 1, 1)


def test_none_departs_from_nested_masks():
    found = Turnover(sliding([(0, 0)]), sliding([(0, 0), (0, 1)]))
    assert (found.departed, found.share, found.maximum, found.normalized) == (frozenset(), 0, 1, 0)


def test_nothing_is_normalized_where_nothing_can_depart():
    found = Turnover(sliding([(0, 0)]), HeadMask.all_sliding(LAYOUT, 7))
    assert (found.share, found.maximum, found.normalized) == (0, 0, None)


@pytest.mark.parametrize("num_units", [2, 5, 7])
def test_the_maximum_is_the_largest_over_all_pairs_of_masks(num_units):
    layout = HeadLayout((num_units - 1, 1))
    units = list(layout.units())
    for small, large in itertools.combinations(range(1, num_units + 1), 2):
        fixed = sliding(itertools.combinations(units, large).__next__(), layout)
        shares = [len(set(one) - fixed.localized) / small for one in itertools.combinations(units, small)]
        # by symmetry, one larger mask stands for all
        assert Turnover(first_units(layout, small), fixed).maximum == pytest.approx(max(shares))


@given(growing())
def test_never_beyond_its_maximum_and_counted_from_the_keys(pair):
    smaller, larger = pair
    found = Turnover(smaller, larger)
    pairs = list(zip(smaller.key(), larger.key(), strict=True))
    assert found.share == pytest.approx(pairs.count(("0", "1")) / smaller.key().count("0"))
    assert 0 <= found.share <= found.maximum <= 1
    if found.normalized is not None:
        assert found.share == pytest.approx(found.normalized * found.maximum)


@given(st.integers(3, 12), st.data())
def test_at_the_maximum_the_normalized_turnover_is_one(num_units, data):
    large = data.draw(st.integers(2, num_units - 1))
    small = data.draw(st.integers(1, large - 1))
    layout = HeadLayout((num_units,))
    units = list(layout.units())
    assert Turnover(sliding(units[:small], layout), sliding(units[-large:], layout)).normalized == 1


def fits(maximum: float, percent: int, normalized: int) -> bool:
    """Whether T and T / T_max, both rounded to whole percents, can be these."""
    return (percent - 0.5) / (normalized + 0.5) <= maximum <= (percent + 0.5) / (normalized - 0.5)


@pytest.mark.parametrize(("layers", "groups", "small", "large", "percent", "normalized"), PAIRS)
def test_the_papers_table_3_fits(layers, groups, small, large, percent, normalized):
    layout = HeadLayout((groups,) * layers)
    smaller, larger = (first_units(layout, layout.num_localized(ratio)) for ratio in (small, large))
    assert fits(Turnover(smaller, larger).maximum, percent, normalized)


def test_the_papers_table_3_fits_no_other_denominator():
    """A share of all units fits no row; a share of the larger mask's fits one, at the very edge of its rounding."""
    rows = [(ratios, percents) for _, _, pairs in TABLE_3.values() for ratios, percents in pairs.items()]
    of_all = [fits(min(small, 1 - large), *percents) for (small, large), percents in rows]
    of_larger = [fits(min(small, 1 - large) / large, *percents) for (small, large), percents in rows]
    assert (len(rows), sum(of_all)) == (12, 0)
    assert sum(of_larger) <= 1


def test_ten_rows_of_the_papers_table_3_come_from_one_whole_number_of_units_each():
    """The other two lie between whole numbers: their masks must have been of slightly other sizes."""
    counts = {}
    for name, (layers, groups, rows) in TABLE_3.items():
        num_units = layers * groups
        for (small, large), percents in rows.items():
            size, most = num_units * small, min(num_units * small, num_units * (1 - large))
            fitting = [n for n in range(int(most) + 1) if abs(100 * n / size - percents[0]) <= 0.5]
            counts[name, small] = [n for n in fitting if abs(100 * n / most - percents[1]) <= 0.5]
    assert counts.pop(("14B", 0.75)) == counts.pop(("30B", 0.75)) == []
    assert [number for (number,) in counts.values()] == [17, 17, 10, 19, 21, 16, 22, 25, 14, 15]


def test_the_papers_only_stated_maximum():
    layout = HeadLayout((8,) * 36)
    assert Turnover(first_units(layout, 144), first_units(layout, 216)).maximum == 0.5


@pytest.mark.parametrize(
    ("smaller", "larger", "message"),
    [
        (sliding([]), sliding([(0, 0)]), "some units and one that localizes more, got 0 and 1"),
        (sliding([(0, 0)]), sliding([(0, 1)]), "got 1 and 1"),
        (sliding([(0, 0), (0, 1)]), sliding([(0, 1)]), "got 2 and 1"),
        (
            sliding([(0, 0)]),
            sliding([(0, 0), (0, 1)], HeadLayout((2,))),
            "smaller has 5 layers with 3, 0, 5, 2, 1 KV heads, the larger 1 layers x 2 KV heads",
        ),
    ],
    ids=["empty", "equal", "exchanged", "layout"],
)
def test_what_is_no_growth_is_refused(smaller, larger, message):
    with pytest.raises(BoschError, match=message):
        Turnover(smaller, larger)

from masks_by_hand import LAYOUT, sliding

from bosch.analysis.units import share_per_layer, votes


def test_share_of_each_layer_and_none_where_it_has_no_units():
    assert share_per_layer(sliding([(0, 0), (0, 2), (2, 1), (4, 0)])) == (2 / 3, None, 1 / 5, 0, 1)


def test_votes_count_the_masks_that_localize_a_unit():
    found = votes({"a": sliding([(0, 0), (4, 0)]), "b": sliding([(0, 0)]), "c": sliding([(2, 4)])})
    assert list(found) == list(LAYOUT.units())
    assert {unit: count for unit, count in found.items() if count} == {(0, 0): 2, (4, 0): 1, (2, 4): 1}

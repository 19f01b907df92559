import pytest
from hypothesis import given
from hypothesis import strategies as st
from masks_by_hand import LAYOUT, masks, sliding

from bosch.analysis.locality import LocalityChoice
from bosch.errors import BoschError
from bosch.heads import HeadLayout

SMALL = HeadLayout((3, 2))
SCORES = {(0, 0): 0.9, (0, 1): 0.1, (0, 2): 0.5, (1, 0): 0.5, (1, 1): 0.7}

some_scores = st.lists(st.integers(-3, 3), min_size=11, max_size=11).map(
    lambda values: dict(zip(LAYOUT.units(), map(float, values), strict=True))
)


def test_the_ranking_is_that_of_static_methods():
    """Highest first; of equals, the lower layer first."""
    found = LocalityChoice(SCORES, sliding([(0, 0)], SMALL))
    assert found.ranking == ((0, 0), (1, 1), (0, 2), (1, 0), (0, 1))


def test_agreement_and_separation_by_hand():
    """(0, 0) and (1, 0) slide; the ranking would take (0, 0) and (1, 1). Of the 2 x 3 pairs of a sliding and a full
    unit, 0.9 wins three; 0.5 wins one, ties one and loses one."""
    found = LocalityChoice(SCORES, sliding([(0, 0), (1, 0)], SMALL))
    assert found.agreement == 1 / 2
    assert found.separation == pytest.approx((3 + 1 + 0.5) / 6)


def test_a_mask_by_the_ranking_itself_agrees_wholly():
    found = LocalityChoice(SCORES, sliding([(0, 0), (1, 1)], SMALL))
    assert (found.agreement, found.separation) == (1, 1)


def test_where_nothing_was_chosen_there_is_nothing_to_agree_with():
    nothing, everything = (LocalityChoice(SCORES, sliding(units, SMALL)) for units in ([], SMALL.units()))
    assert (nothing.agreement, nothing.separation) == (None, None)
    assert (everything.agreement, everything.separation) == (1, None)


@given(some_scores, masks())
def test_separation_is_the_rank_sum_statistic(scores, mask):
    """U = sum of the sliding units' middle ranks, less what they would have if they were the lowest."""
    num_sliding, num_full = mask.num_localized, 11 - mask.num_localized
    if not num_sliding or not num_full:
        return
    values = sorted(scores.values())
    middle_rank = {v: values.index(v) + (values.count(v) + 1) / 2 for v in values}
    rank_sum = sum(middle_rank[scores[unit]] for unit in mask.localized)
    expected = (rank_sum - num_sliding * (num_sliding + 1) / 2) / (num_sliding * num_full)
    assert LocalityChoice(scores, mask).separation == pytest.approx(expected)


@given(some_scores, masks())
def test_negated_scores_foretell_the_opposite(scores, mask):
    found = LocalityChoice(scores, mask).separation
    if found is not None:
        negated = {unit: -score for unit, score in scores.items()}
        assert LocalityChoice(negated, mask).separation == pytest.approx(1 - found)


def test_parts_of_the_ranking_by_hand():
    found = LocalityChoice(SCORES, sliding([(0, 0), (1, 0)], SMALL))
    assert found.share_by_rank(2) == [(0, 2, 1 / 2), (2, 5, 1 / 3)]
    assert found.share_by_rank(10) == [(0, 1, 1), (1, 2, 0), (2, 3, 0), (3, 4, 1), (4, 5, 0)]


def test_scores_of_other_units_are_refused():
    with pytest.raises(BoschError, match="other units than those of the mask, 5 layers with 3, 0, 5, 2, 1 KV heads"):
        LocalityChoice(SCORES, sliding([(0, 0)]))

import math

import pytest

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.objective import OBJECTIVES, Objective, Score


class Table:
    """Scores by number of sliding units."""

    layout = HeadLayout((2, 2))
    full = HeadMask.all_full(layout, 4)
    sliding = HeadMask.all_sliding(layout, 4)

    def __init__(self, scores):
        self.scores = scores

    def score(self, mask):
        return self.scores[mask.num_localized]

    def rebase(self, mask):
        pass


SCORES = {
    0: Score((True, True, True, False), (0.1, 0.1, 0.2, 1.6)),
    2: Score((True, False, True, False), (0.5, 1.0, 0.5, 2.0)),
    4: Score((False, False, False, True), (3.0, 3.0, 3.0, 1.0)),
}


def test_accuracy_and_nll_by_hand():
    assert SCORES[0].accuracy == 0.75
    assert SCORES[0].nll == pytest.approx(0.5)


def test_normalized_scores_by_hand():
    half = Table.full.localize([(0, 0), (1, 1)])
    by_accuracy = Objective(Table(SCORES), "accuracy")
    assert by_accuracy.anchors == (0.25, 0.75)
    assert by_accuracy(half) == pytest.approx((0.5 - 0.25) / 0.5)
    by_nll = Objective(Table(SCORES), "nll")
    assert by_nll.anchors == (-2.5, -0.5)
    assert by_nll(half) == pytest.approx((2.5 - 1.0) / 2.0)


def test_nll_breaks_ties_and_never_outweighs_an_example():
    value = OBJECTIVES["accuracy+nll"]
    good, bad = Score((True, False), (0.0, 0.0)), Score((True, False), (50.0, 50.0))
    assert value(good) > value(bad)
    assert value(Score((True, True), (1e9, 1e9))) > value(good)


def test_anchors_that_tell_nothing_say_what_to_change():
    flat = Table({0: SCORES[0], 4: SCORES[0]})
    for kind in OBJECTIVES:
        with pytest.raises(BoschError, match="shorter examples, easier tasks, a smaller window"):
            Objective(flat, kind).anchors  # noqa: B018


def test_a_nan_counts_as_the_worst_score():
    table = Table({**SCORES, 2: Score((False,) * 4, (math.nan,) * 4)})
    assert Objective(table, "nll")(Table.full.localize([(0, 0), (1, 1)])) == -math.inf


def test_unknown_objectives_are_named():
    with pytest.raises(BoschError, match="did you mean 'accuracy'"):
        Objective(Table(SCORES), "acuracy")

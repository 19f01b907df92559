import math

import pytest

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.scoring.objective import OBJECTIVES, Bound, Cost, Objective, Score


class Table:
    """Scores by number of sliding units."""

    layout = HeadLayout((2, 2))
    full = HeadMask.all_full(layout, 4)
    sliding = HeadMask.all_sliding(layout, 4)

    def __init__(self, scores):
        self.scores = scores

    def score(self, mask):
        return self.scores[mask.num_localized]

    def cost(self, masks):
        return Cost(len(list(masks)), 0.0, 0.0)

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


@pytest.mark.parametrize("nll", [math.nan, math.inf])
def test_what_is_no_number_is_not_reported(nll):
    with pytest.raises(BoschError, match=rf"random 3 on the heldout set: the answer NLL is {nll}, expected a finite"):
        Score((True, False), (0.1, nll)).check_finite("random 3 on the heldout set")
    Score((True, False), (0.1, 9.9)).check_finite("random 3")


def test_anchored_bounds_stop_at_the_first_example_that_decides():
    class OneByOne(Table):
        def score_while(self, mask, is_wanted):
            score = self.score(mask)
            for seen in range(4):
                optimistic = Score(score.hits[:seen] + (True,) * (4 - seen), score.nlls[:seen] + (0.0,) * (4 - seen))
                if not is_wanted(optimistic):
                    return optimistic, False
            return score, True

    objective = Objective(OneByOne(SCORES), "nll")
    full, mask = OneByOne.full, OneByOne.full.localize([(0, 0), (0, 1)])
    # a = -2.5, b = -0.5; after 0, 1, 2, 3, 4 examples the NLL is at least 0, 0.125, 0.375, 0.5, 1.0
    assert objective.at_least(mask, 0.75) == Bound(0.75, True)
    assert objective.at_least(mask, 1.0) == Bound(0.75, True)  # only the last example decides
    assert objective.at_least(mask, 1.05) == Bound(pytest.approx(1.0), False)
    assert objective.at_least(mask, 1.3).is_exact is False
    assert objective.at_least(full, -9.0) == Bound(1.0, True)


def test_an_objective_knows_what_its_own_masks_cost_and_not_those_of_others():
    """Two objectives of one scorer; a mask that is asked for again, and the anchors, which count as masks do."""
    scorer = Table(SCORES)
    objective, other = Objective(scorer, "nll"), Objective(scorer, "nll")
    assert objective.cost().evaluations == 0
    half = scorer.full.localize([(0, 0), (1, 1)])
    objective.score(half)
    objective.score(half)
    assert (objective.asked, objective.cost().evaluations) == ({half}, 1)
    objective(half)
    assert (objective.asked, objective.cost().evaluations) == ({half, scorer.full, scorer.sliding}, 3)
    assert other.cost().evaluations == 0

import itertools

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toy import ToyScorer, ignore

from bosch.heads import HeadLayout, Unit
from bosch.scoring.objective import Objective
from bosch.selectors.floating import Floating
from bosch.selectors.method import Problem, Selection

LAYOUT = HeadLayout((2, 3, 0, 2))
UNITS = list(LAYOUT.units())
WEIGHTS = st.lists(st.floats(0.001, 2), min_size=7, max_size=7)


def exhaustive_greedy(scorer: ToyScorer, count: int) -> set[Unit]:
    """Measure every unit at every step, and take the one that costs least."""
    sliding: set[Unit] = set()
    while len(sliding) < count:
        nlls = sorted((scorer.nll(scorer.full.localize({*sliding, unit})), unit) for unit in {*UNITS} - sliding)
        assume(len(nlls) == 1 or nlls[1][0] - nlls[0][0] > 1e-9)
        sliding.add(nlls[0][1])
    return sliding


def run(scorer: ToyScorer, ratio: float, budget: int = 1, tolerance: float = 0.02) -> Selection:
    problem = Problem(Objective(scorer, "nll"))
    return Floating(tolerance).select(problem, ratio, budget=budget, seed=0, on_stage=ignore)


@settings(max_examples=50, deadline=None)
@given(WEIGHTS, st.sampled_from([0.25, 0.5, 0.75, 1]))
def test_units_that_do_not_meet_are_ranked_exactly(weights, ratio):
    """Where the units' costs only add up, the mask is the best of all but for what the tolerance gives away."""
    scorer = ToyScorer(LAYOUT, dict(zip(UNITS, weights, strict=True)))
    selection = run(scorer, ratio)
    assert selection.mask.num_localized == LAYOUT.num_localized(ratio)
    span = scorer.nll(scorer.sliding) - scorer.nll(scorer.full)
    given_away = 3 * 0.02 * span  # three layers may have gone whole
    assert scorer.nll(selection.mask) <= scorer.best(selection.mask.num_localized) + given_away + 1e-9


@settings(max_examples=200, deadline=None)
@given(
    WEIGHTS,
    st.dictionaries(st.sampled_from(list(itertools.combinations(UNITS, 2))), st.floats(0, 3), max_size=6),
    st.integers(1, 7),
)
def test_neither_laziness_nor_racing_changes_the_greedys_choice(weights, pairs, count):
    """Where units never cost less because others slide, guesses are bounds, and what is left out cannot win."""
    scorer = ToyScorer(LAYOUT, dict(zip(UNITS, weights, strict=True)), pairs)
    expected = exhaustive_greedy(scorer, count)
    # With this tolerance no layer slides whole.
    assert run(scorer, count / 7, tolerance=-1.0).mask.localized == expected


def test_a_layer_that_costs_nothing_is_never_taken_apart():
    scorer = ToyScorer(LAYOUT, {(0, 0): 1.0, (0, 1): 2.0, (3, 0): 3.0, (3, 1): 4.0})
    selection = run(scorer, 3 / 7)
    assert selection.mask.localized == {(1, 0), (1, 1), (1, 2)}
    apart = [mask for mask in scorer.calls if 0 < len({unit for unit in mask.localized if unit[0] == 1}) < 3]
    assert apart == []

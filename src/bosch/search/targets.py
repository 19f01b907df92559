"""From what a user asked for to masks: at ratios, within a budget of bytes, or within a drop of the score."""

from collections.abc import Callable

from bosch.cache_size import CacheBudget, CacheSize
from bosch.heads import HeadMask
from bosch.objective import Objective
from bosch.search.settings import SearchSettings
from bosch.selectors import Selection

Select = Callable[[float], Selection]


def select_targets(
    settings: SearchSettings, select: Select, objective: Objective, cache_size: CacheSize
) -> list[Selection]:
    """The selections that were asked for, smallest ratio first.

    Args:
        settings: name the target.
        select: the method, as a function of the ratio.
        objective: normalized score of masks.
        cache_size: of the model.

    Raises:
        BoschError: the budget is too small for any mask.
    """
    full = objective.scorer.full
    if settings.max_drop is not None:
        return [_largest(select, objective, 1 - settings.max_drop)]
    if settings.kv_budget is not None:
        count = cache_size.num_localized_within(CacheBudget.parse(settings.kv_budget), full)
        return [select(count / full.layout.num_units)]
    return [select(ratio) for ratio in settings.fixed_ratios]


def share_of_exchanges(settings: SearchSettings, ratio: float, num_units: int) -> float:
    """Which part of a search's exchanges one of its ratios may make, in [0, 1].

    Several ratios share them in proportion: the larger one has more to win, and its measurements end sooner. A
    bisection takes one ratio for every halving, and gives all the same.
    """
    if settings.max_drop is not None:
        return 1 / num_units.bit_length()
    total = sum(settings.fixed_ratios)
    return ratio / total if total else 1.0


def _largest(select: Select, objective: Objective, floor: float) -> Selection:
    """The selection with most sliding units whose score reaches the floor, by bisection: scores are taken to fall as
    more units slide. The evaluations that two ratios share are made once."""
    num_units = objective.scorer.layout.num_units
    best, reached, below = select(0.0), 0, num_units + 1
    while reached + 1 < below:
        count = (reached + below) // 2
        selection = select(count / num_units)
        if objective(selection.mask) >= floor:
            best, reached = selection, count
        else:
            below = count
    return best


def masks_on_the_way(selections: list[Selection]) -> list[HeadMask]:
    """One mask for each number of sliding units that no selection has, as the selections' paths came by them; smallest
    first."""
    chosen = {selection.mask.num_localized for selection in selections}
    by_count = {mask.num_localized: mask for selection in selections for mask in selection.path}
    return [by_count[count] for count in sorted(by_count.keys() - chosen - {0})]

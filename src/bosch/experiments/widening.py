"""Wider windows for some layers, paid with more sliding units: a mask of the same bytes and a better score.

One more sliding unit saves as many bytes as hundreds of tokens more in the windows of others take: at 32k tokens and a
window of 64, as much as twice the window in five hundred units. So units slide one by one beyond what the ratio asks,
and each time the layers' windows are widened, those first that gain most for a byte, until that is worth no more.
"""

import dataclasses
from collections.abc import Callable, Sequence

from bosch.heads import HeadMask
from bosch.scoring.objective import Objective
from bosch.selectors import Selection
from bosch.selectors.method import StageListener
from bosch.selectors.racing import Race


def widen(
    selection: Selection,
    objective: Objective,
    *,
    windows: Sequence[int],
    num_bytes: Callable[[HeadMask], int],
    limit: int,
    on_stage: StageListener,
) -> Selection:
    """Give layers wider windows at the bytes of a mask.

    Args:
        selection: whose mask has one window.
        objective: the score to be raised.
        windows: that a layer may have instead, in tokens, smallest first; all wider than the mask's.
        num_bytes: of the cache that a mask leaves.
        limit: measurements after which no more units are tried.
        on_stage: hears how far it has come.

    Returns:
        The best mask that was met whose cache is no larger; the path ends with the mask of one window.
    """
    narrow, allowed, race = selection.mask, num_bytes(selection.mask), Race(objective)
    candidates = race.guesses(set(narrow.layout.units()) - narrow.localized)
    best, steps = narrow, []
    on_stage("widening windows", limit)
    while race.measurements < limit:
        objective.scorer.rebase(narrow)
        more = race.cheapest(narrow, candidates)
        if more is None:
            break
        narrow = narrow.localize(more.units)
        wide = _widest(race, narrow, windows, lambda mask: allowed - num_bytes(mask))
        if objective(wide) <= objective(best):
            break
        best = wide
        steps.append({"units": [list(unit) for unit in more.units], "mask": wide.key(), "score": objective(wide)})
    objective.scorer.rebase(best)
    record = {**selection.record, "widening": steps, "score": objective(best)}
    return dataclasses.replace(selection, mask=best, record=record, path=(*selection.path, selection.mask))


def _widest(race: Race, mask: HeadMask, windows: Sequence[int], room: Callable[[HeadMask], int]) -> HeadMask:
    """Spend the room on the windows of single layers, from one width to the next; what gains most for a byte first."""
    for window in windows:
        race.objective.scorer.rebase(mask)
        score, gains = race.objective(mask), dict[int, float]()
        for layer in reversed(mask.layout.eligible_layers):
            if mask.localized_per_layer[layer]:
                wider = mask.give_window(window, [layer])
                bound = race.measure(wider, score)
                if bound.is_exact and bound.score > score:
                    gains[layer] = (bound.score - score) / max(room(mask) - room(wider), 1)
        for layer in sorted(gains, key=lambda layer: (-gains[layer], layer)):
            wider = mask.give_window(window, [layer])
            mask = wider if room(wider) >= 0 else mask
    return mask

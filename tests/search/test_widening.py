"""Wider windows for the bytes of more sliding units."""

import dataclasses

import pytest

from bosch.cache_size import CacheSize
from bosch.cli import main
from bosch.common.files import read_json
from bosch.experiments.widening import widen
from bosch.heads import HeadLayout, HeadMask
from bosch.runs import RunDirectory
from bosch.scoring.objective import Objective, Score
from bosch.selectors import Selection
from stand_ins import StandInScorer

LAYOUT = HeadLayout((2, 2, 2))
SIZE = CacheSize((1, 1, 1))


class WindowScorer(StandInScorer):
    """NLL: what each sliding unit costs by itself, over its layer's window."""

    def __init__(self, costs: dict[tuple[int, int], float]) -> None:
        super().__init__(LAYOUT, [])
        self.costs = costs

    def score(self, mask: HeadMask) -> Score:
        return Score((True,), (sum(self.costs[unit] / mask.window_of(unit[0]) for unit in mask.localized),))


def widened(costs: list[float], sliding: list[tuple[int, int]], num_tokens: int, limit: int = 100) -> Selection:
    scorer = WindowScorer(dict(zip(LAYOUT.units(), costs, strict=True)))
    selection = Selection(scorer.full.localize(sliding), {"method": "by hand"})
    return widen(
        selection,
        Objective(scorer, "nll"),
        windows=(8, 16),
        num_bytes=lambda mask: SIZE.nbytes(mask, num_tokens),
        limit=limit,
        on_stage=lambda name, planned: None,
    )


def test_one_more_unit_pays_for_the_windows_of_all():
    """Three of six units slide in windows of 4. One more, of 100 tokens, leaves 96 bytes: four units take 12 more each
    for windows of 16."""
    selection = widened([1, 1, 1, 9, 9, 0.1], [(0, 0), (0, 1), (1, 0)], num_tokens=100)
    assert selection.mask.localized == {(0, 0), (0, 1), (1, 0), (2, 1)}
    assert [selection.mask.window_of(layer) for layer in range(3)] == [16, 16, 16]
    assert SIZE.nbytes(selection.mask, 100) == 2 * 100 + 4 * 16 <= 3 * 100 + 3 * 4
    assert selection.path[-1].key() == "00.01.11"
    low, high = (9 + 9 + 3 + 0.1) / 4, 0.0  # all sliding in windows of 4, and all full
    assert selection.record["score"] == pytest.approx((low - (1 + 1 + 1 + 0.1) / 16) / (low - high))


def test_what_gains_most_for_a_byte_is_widened_first_and_the_bytes_are_kept():
    """20 tokens: one more unit leaves 16 bytes, 8 of which two units of a layer take for a window of 8. Layer 1's gain
    most; layer 0's come next; nothing is left for 16, or for layer 2."""
    selection = widened([4, 4, 9, 9, 50, 0.1], [(0, 0), (0, 1), (1, 0), (1, 1)], num_tokens=20)
    assert selection.mask.localized == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)}
    assert [selection.mask.window_of(layer) for layer in range(3)] == [8, 8, 4]
    assert SIZE.nbytes(selection.mask, 20) == 20 + 4 * 8 + 4 == SIZE.nbytes(selection.path[-1], 20)


def test_a_mask_that_nothing_improves_stays():
    selection = widened([0.1, 0.1, 0.1, 9, 9, 9], [(0, 0), (0, 1), (1, 0)], num_tokens=100)
    assert selection.mask == selection.path[-1]
    assert selection.record["widening"] == []


def test_without_measurements_or_units_left_the_mask_stays():
    assert widened([1] * 6, [(0, 0)], 100, limit=0).mask.localized == {(0, 0)}
    everything = widened([1] * 6, list(LAYOUT.units()), 100)
    assert everything.mask == everything.path[-1]


def test_a_search_with_wider_windows(command, tmp_path):
    """The mask takes no more bytes than the one of one window, scores better on the calibration set, is resumed, and
    both are in the report."""
    run = RunDirectory(tmp_path / "run")
    arguments = command(run.path, method="floating", wider_windows="16,48", ratio=0.5)
    assert main(arguments) == 0
    mask = HeadMask.load(run.mask)
    rows = {row["name"]: row for row in read_json(run.scores)["rows"] if row["name"].startswith("floating")}
    narrow, wide = rows["floating, one window"], rows["floating"]
    assert wide["mask"] == mask.key()
    assert wide["cache_bytes"] <= narrow["cache_bytes"]
    assert wide["calibration"]["nll"] < narrow["calibration"]["nll"]
    assert mask.num_localized > round(9 * narrow["ratio"]) == 5
    assert {16, 48} & set(mask.windows)
    before = run.mask.read_bytes()
    assert main(arguments) == 0
    assert run.mask.read_bytes() == before
    assert dataclasses.replace(mask, layer_windows=()).key() == mask.key().replace("@16", "").replace("@48", "")


@pytest.mark.parametrize(
    ("windows", "message"),
    [("4", "at least 5, got 4"), ("160", "a wider window of 160 tokens covers examples of 160 tokens whole")],
)
def test_windows_that_are_none(command, tmp_path, capsys, windows, message):
    assert main(command(tmp_path / "run", wider_windows=windows)) == 2
    assert message in capsys.readouterr().err

"""What a search is aimed at: ratios, a budget of bytes, a drop of the score."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.cache_size import CacheSize
from bosch.cli import main
from bosch.common.files import read_json
from bosch.experiments.search import masks_on_the_way, select_targets, share_of_exchanges
from bosch.experiments.settings import SearchSettings
from bosch.heads import HeadLayout, HeadMask
from bosch.runs import RunDirectory
from bosch.scoring.objective import Objective
from bosch.selectors import Selection
from stand_ins import StandInScorer

LAYOUT = HeadLayout((3, 3, 3))


def aim(command, directory, **target):
    """A search with another target than the ratio."""
    arguments = command(directory, method="floating", **target)
    position = arguments.index("--ratio")
    return main(arguments[:position] + arguments[position + 2 :])


def test_several_ratios_are_one_search(command, tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert aim(command, run.path, ratios="0.75,0.25,0.5") == 0
    rows = read_json(run.scores)["rows"]
    chosen = [row for row in rows if row["name"] == "floating"]
    assert [round(9 * row["ratio"]) for row in chosen] == [3, 5, 7]
    assert all(row["heldout"]["examples"] == 3 for row in chosen)
    assert HeadMask.load(run.mask, LAYOUT).key() == chosen[-1]["mask"]
    for row, count in zip(chosen[:-1], (3, 5), strict=True):
        assert HeadMask.load(run.masks / f"{count:04d}.json", LAYOUT).key() == row["mask"]
    assert {round(9 * row["ratio"]) for row in rows if row["name"] == "floating on the way"}.isdisjoint({3, 5, 7})
    records = [*read_json(run.selection)["smaller_ratios"], read_json(run.selection)]
    assert [record["score"] >= record["score_before_exchanges"] for record in records] == [True] * 3


def test_a_budget_of_bytes_is_kept_and_the_front_says_so(command, tmp_path):
    """A token takes 2 * 8 numbers of 4 bytes in each of 9 units: 100 tokens fill 57,600 bytes, 4 of them 2,304."""
    run = RunDirectory(tmp_path / "run")
    assert aim(command, run.path, kv_budget="30000B@100") == 0
    mask = HeadMask.load(run.mask, LAYOUT)
    sizes = [64 * (100 * (9 - count) + 4 * count) for count in range(10)]
    assert mask.num_localized == next(count for count, size in enumerate(sizes) if size <= 30_000) == 5
    with run.front.open() as file:
        front = list(csv.DictReader(file))
    for row in front:
        assert int(row["cache_bytes"]) == sizes[round(9 * float(row["ratio"]))]
    assert front[0]["name"] == "original"
    assert float(front[0]["heldout_nll"]) == read_json(run.scores)["rows"][0]["heldout"]["nll"]


@given(st.lists(st.floats(0, 0.99), min_size=9, max_size=9), st.floats(0, 0.99))
def test_the_largest_ratio_within_a_drop(scores, max_drop):
    """Where scores fall as more units slide, bisection finds what trying every ratio finds."""
    scores = [1.0, *sorted(scores, reverse=True)]
    scorer = StandInScorer(LAYOUT, scores)
    units = list(LAYOUT.units())

    def select(ratio: float) -> Selection:
        return Selection(scorer.full.localize(units[: LAYOUT.num_localized(ratio)]), {})

    settings = SearchSettings(model="m", window=4, max_drop=max_drop)
    objective = Objective(scorer, "nll")
    low, high = objective.anchors
    expected = max(n for n, score in enumerate(scores) if (score - low) / (high - low) >= 1 - max_drop)
    (selection,) = select_targets(settings, select, objective, CacheSize((1, 1, 1)))
    assert selection.mask.num_localized == expected


def test_a_drop_from_the_command_line(command, tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert aim(command, run.path, max_drop=0.3) == 0
    low, high = read_json(run.scores)["facts"]["anchors"]
    chosen = next(row for row in read_json(run.scores)["rows"] if row["name"] == "floating")
    assert (-chosen["calibration"]["nll"] - low) / (high - low) >= 0.7


@pytest.mark.parametrize(
    ("target", "shares"),
    [
        ({"ratios": (0.5, 0.25, 0.75)}, {0.25: 1 / 6, 0.5: 1 / 3, 0.75: 1 / 2}),
        ({"ratio": 0.25}, {0.25: 1.0}),
        ({"ratios": (0.0,)}, {0.0: 1.0}),
        ({"kv_budget": "1MiB@1k"}, {0.375: 1.0}),
        ({"max_drop": 0.1}, {0.5: 1 / 7, 0.25: 1 / 7}),
    ],
)
def test_the_ratios_of_one_search_share_its_exchanges(target, shares):
    settings = SearchSettings(model="any", window=64, **target)
    for ratio, share in shares.items():
        assert share_of_exchanges(settings, ratio, num_units=90) == pytest.approx(share)


def test_of_two_masks_of_one_size_on_the_way_the_larger_ratios_stays():
    full = HeadMask.all_full(LAYOUT, window=4)
    a, b, c, d = (full.localize(units) for units in ([(0, 0)], [(1, 0)], [(0, 0), (0, 1)], [(1, 0), (1, 1), (2, 0)]))
    smaller, larger = Selection(c, {}, path=(full, a)), Selection(d, {}, path=(b, c))
    assert masks_on_the_way([smaller, larger]) == [b]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({}, "expected one of --ratio, --ratios, --kv-budget and --max-drop, got none"),
        ({"ratios": "0.5", "max_drop": 0.1}, "got --ratios and --max-drop"),
        ({"ratios": "0.5,1.5"}, "the ratio must be a number from 0 (all full) to 1 (all sliding), got 1.5"),
        ({"kv_budget": "2GB@32k"}, "like 2GiB@32k or 500MiB@4096; got '2GB@32k'"),
        ({"kv_budget": "100B@1k"}, "with every unit sliding it takes 2,304 bytes"),
        ({"max_drop": 1.0}, "max_drop must be a number from 0 to below 1, got 1.0"),
    ],
)
def test_targets_that_are_none(command, tmp_path, capsys, target, message):
    assert aim(command, tmp_path / "run", **target) == 2
    assert message in capsys.readouterr().err

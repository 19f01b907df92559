import dataclasses
import json
import math
import pickle
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch import BoschError, HeadLayout, HeadMask
from bosch.heads import MASK_SCHEMA, quota

LAYOUTS = st.lists(st.integers(0, 5), min_size=1, max_size=7).map(lambda counts: HeadLayout(tuple(counts)))


@st.composite
def masks(draw: st.DrawFn) -> HeadMask:
    layout = draw(LAYOUTS)
    full = tuple(tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n))) for n in layout.units_per_layer)
    windows = st.integers(1, 10**6)
    own = draw(st.just([]) | st.lists(windows, min_size=layout.num_layers, max_size=layout.num_layers))
    return HeadMask(layout, full, draw(windows), draw(st.integers(0, 64)), tuple(own))


# A 2-layer mask of 3 and 2 units, written out as the file format has it.
DATA = {
    "schema": MASK_SCHEMA,
    "num_layers": 2,
    "units_per_layer": [3, 2],
    "window": 4,
    "sinks": 2,
    "ratio": 0.6,
    "full": [[True, False, False], [False, True]],
    "provenance": {"seed": 1},
}
MASK = HeadMask(HeadLayout((3, 2)), ((True, False, False), (False, True)), window=4, sinks=2)


def test_layout_counts_its_units():
    layout = HeadLayout((3, 0, 2))
    assert (layout.num_layers, layout.num_units, layout.eligible_layers) == (3, 5, (0, 2))
    assert list(layout.units()) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert str(layout) == "3 layers with 3, 0, 2 KV heads"
    assert str(HeadLayout((3, 3))) == "2 layers x 3 KV heads"


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((), "a layout needs 1 to 10000 layers, got 0"),
        ((1,) * 10_001, "a layout needs 1 to 10000 layers, got 10001"),
        ((3, -1), "layer 1 has -1 units; expected an integer from 0 to 10000"),
        ((10**9,), "layer 0 has 1000000000 units"),
        ((2.0,), "layer 0 has 2.0 units"),
        ((True,), "layer 0 has True units"),
        (("3",), "layer 0 has '3' units"),
    ],
)
def test_layout_refuses(counts, message):
    with pytest.raises(BoschError, match=message):
        HeadLayout(counts)


@given(denominator=st.integers(1, 1000), count=st.integers(0, 10_000), data=st.data())
def test_quota_is_the_exact_ceiling(denominator, count, data):
    numerator = data.draw(st.integers(0, denominator))
    exact = math.ceil(Fraction(numerator, denominator) * count)
    assert quota(numerator / denominator, count) == exact


def test_quota_of_a_float_just_above_its_decimal():
    assert 0.07 * 100 > 7  # the float product that a plain ceil would round up to 8
    assert quota(0.07, 100) == 7


@pytest.mark.parametrize("ratio", [-0.1, 1.1, math.nan, math.inf, True, "0.5", None])
def test_quota_refuses_what_is_no_ratio(ratio):
    with pytest.raises(BoschError, match=r"the ratio must be a number from 0 \(all full\) to 1 \(all sliding\), got"):
        quota(ratio, 3)


def test_mask_in_numbers():
    assert MASK.localized == {(0, 1), (0, 2), (1, 0)}
    assert (MASK.num_localized, MASK.localized_per_layer, MASK.ratio) == (3, (2, 1), 0.6)
    assert [MASK[unit] for unit in MASK.layout.units()] == [True, False, False, False, True]
    assert MASK.key() == "100.01"
    assert str(MASK) == "3 of 5 KV heads sliding (ratio 0.600, window 4)"


def test_corners_of_the_space():
    layout = HeadLayout((3, 0, 2))
    assert HeadMask.all_full(layout, 4).ratio == 0
    assert HeadMask.all_sliding(layout, 4).ratio == 1
    assert HeadMask.all_full(HeadLayout((0,)), 4).ratio == 0


def test_masks_are_values():
    same = HeadMask.from_json(DATA)
    assert same == MASK
    assert hash(same) == hash(MASK)
    assert dataclasses.replace(MASK, window=5) != MASK
    with pytest.raises(dataclasses.FrozenInstanceError):
        MASK.window = 5


@given(mask=masks(), data=st.data())
def test_localizing_units_makes_exactly_those_slide(mask, data):
    units = data.draw(st.sets(st.sampled_from(list(mask.layout.units())))) if mask.layout.num_units else set()
    localized = mask.localize(units)
    assert localized.localized == mask.localized | units
    assert localized.assign({unit: mask[unit] for unit in units}) == mask
    changed = [layer for layer, _ in sorted(units - mask.localized)]
    assert mask.first_difference(localized) == (changed[0] if changed else mask.layout.num_layers)


@given(mask=masks())
def test_file_round_trip(mask, tmp_path_factory):
    path = tmp_path_factory.mktemp("mask") / "mask.json"
    mask.save(path, {"seed": 7})
    assert HeadMask.load(path) == mask
    assert HeadMask.load(path, mask.layout) == mask
    assert json.loads(path.read_text())["provenance"] == {"seed": 7}


def test_file_format():
    assert MASK.to_json({"seed": 1}) == DATA


WIDE = dataclasses.replace(MASK, layer_windows=(4, 9))


def test_file_format_of_layers_with_windows_of_their_own():
    assert WIDE.to_json({"seed": 1}) == DATA | {"schema": "bosch.mask/2", "layer_windows": [4, 9]}
    assert HeadMask.from_json(WIDE.to_json()) == WIDE


def test_layers_with_windows_of_their_own():
    assert MASK.give_window(9, [1]) == WIDE
    assert [WIDE.window_of(layer) for layer in range(2)] == [4, 9]
    assert (WIDE.key(), MASK.key()) == ("100.01@9", "100.01")
    assert MASK.first_difference(WIDE) == 1
    assert (WIDE.windows, WIDE.shown_window, MASK.windows, MASK.shown_window) == ((4, 9), "4, 9", (4,), 4)
    assert (MASK.reach, WIDE.reach) == (3 + 3 + 2, 3 + 8 + 2)
    assert str(WIDE) == "3 of 5 KV heads sliding (ratio 0.600, window 4, 9)"


def test_a_window_of_a_layer_in_which_nothing_slides_makes_no_difference():
    back = WIDE.assign({(1, 0): True})
    assert back.key() == MASK.assign({(1, 0): True}).key() == "100.11"
    assert back.first_difference(MASK.assign({(1, 0): True})) == 2
    assert back.windows == (4,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"full": [[True, False, False]]}, r"the mask has rows of \[3\] units in 1 layers, but the model has 2 layers"),
        (
            {"full": [[True, False], [True, False], [True, False]]},
            r"the mask has rows of \[2, 2, 2\] units in 3 layers",
        ),
        ({"full": [[True, False, False, True], [False, True]]}, r"the mask has rows of \[4, 2\]"),
        (
            {"full": [[1.0, False, False], [False, True]]},
            r"unit \(0, 0\) of the mask is 1.0; expected true .* or false",
        ),
        ({"full": [[1, False, False], [False, True]]}, r"unit \(0, 0\) of the mask is 1;"),
        ({"full": [[True, False, False], [False, "true"]]}, r"unit \(1, 1\) of the mask is 'true'"),
        ({"full": [[True, False, None], [False, True]]}, r"unit \(0, 2\) of the mask is None"),
        ({"full": [[True, False, [True]], [False, True]]}, r"unit \(0, 2\) of the mask is \[True\]"),
        ({"full": "100.01"}, "units_per_layer must be a list and its full a list of lists"),
        ({"full": ["100", "01"]}, "units_per_layer must be a list and its full a list of lists"),
        ({"units_per_layer": {"0": 3}}, "units_per_layer must be a list and its full a list of lists"),
        ({"units_per_layer": [3.0, 2]}, "layer 0 has 3.0 units"),
        ({"units_per_layer": [10**9]}, "layer 0 has 1000000000 units"),
        ({"window": 0}, "the window must be an integer of at least 1 token, got 0"),
        ({"window": -1}, "the window must be an integer of at least 1 token, got -1"),
        ({"window": 1.5}, "the window must be an integer of at least 1 token, got 1.5"),
        ({"window": True}, "the window must be an integer of at least 1 token, got True"),
        ({"window": "4"}, "the window must be an integer of at least 1 token, got '4'"),
        ({"window": None}, "the window must be an integer of at least 1 token, got None"),
        ({"sinks": -1}, "the number of sinks must be an integer of at least 0 tokens, got -1"),
        ({"sinks": 2.0}, "the number of sinks must be an integer of at least 0 tokens, got 2.0"),
        ({"schema": "bosch.mask/3"}, "expected an object with schema 'bosch.mask/1', found 'bosch.mask/3'"),
        ({"schema": "bosch.mask/2"}, "lacks layer_windows"),
        ({"schema": "bosch.mask/2", "layer_windows": 8}, "layer_windows must be a list"),
        ({"schema": "bosch.mask/2", "layer_windows": [8]}, "windows for 1 layers, but the model has 2"),
        ({"schema": "bosch.mask/2", "layer_windows": [8, 0]}, "at least 1 token, got 0"),
        ({"schema": "bosch.mask/2", "layer_windows": [8, True]}, "at least 1 token, got True"),
        ({"schema": None}, "not a mask file"),
    ],
)
def test_mask_data_refused(change, message):
    with pytest.raises(BoschError, match=message):
        HeadMask.from_json({**DATA, **change})


@pytest.mark.parametrize("key", ["units_per_layer", "window", "sinks", "full"])
def test_mask_data_that_lacks_something(key):
    data = {name: value for name, value in DATA.items() if name != key}
    with pytest.raises(BoschError, match=f"the mask file lacks {key}"):
        HeadMask.from_json(data)


@pytest.mark.parametrize("data", [None, [], "mask", 3, [DATA]])
def test_data_that_is_no_mask(data):
    with pytest.raises(BoschError, match="not a mask file"):
        HeadMask.from_json(data)


@pytest.mark.parametrize("counts", [(3, 2, 1), (2, 3), (3,), (5,), (2, 2)])
def test_mask_of_another_model_is_refused_with_both_shapes(counts):
    layout = HeadLayout(counts)
    with pytest.raises(BoschError) as refusal:
        HeadMask.from_json(DATA, layout)
    assert str(MASK.layout) in str(refusal.value)
    assert str(layout) in str(refusal.value)


class Payload:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_pickle_as_mask_file_is_refused_and_not_run(tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "mask.json"
    path.write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(BoschError, match=f"{path}: not valid JSON"):
        HeadMask.load(path)
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists()  # the payload works, so its absence above says something


@given(data=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=6))
def test_any_value_is_a_mask_or_refused(data):
    for key in ("units_per_layer", "window", "sinks", "full"):
        try:
            HeadMask.from_json({**DATA, key: data})
        except BoschError:
            continue

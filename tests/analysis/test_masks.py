import json
import pickle
from pathlib import Path

import pytest
from masks_by_hand import LAYOUT, sliding

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.runs import by_ratio, load_mask, load_masks, model_name, name_masks

MASK = sliding([(0, 0), (2, 4)])


def save(path: Path, origin: object = None, mask: HeadMask = MASK) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**mask.to_json(), "provenance": origin}))
    return path


def search(path: Path, method: str, mask: HeadMask = MASK) -> Path:
    """The directory of a search, as far as it is read here."""
    save(path / "mask.json", {"settings": {"method": method}, "model": "models/tiny", "model_hash": "ab" * 32}, mask)
    return path


def test_a_search_is_read_by_its_directory_and_called_by_its_method(tmp_path):
    found = load_mask(search(tmp_path / "run", "razor"))
    assert (found.mask, found.method, found.model, found.model_hash) == (MASK, "razor", "tiny", "ab" * 32)
    assert load_mask(tmp_path / "run" / "mask.json").method == "razor"


def test_a_mask_of_a_comparison_says_its_method_itself(tmp_path):
    assert load_mask(save(tmp_path / "dcam@0.5.json", {"method": "dcam", "settings": {}})).method == "dcam"


def test_the_shortest_names_that_tell_masks_apart(tmp_path):
    paths = [
        search(tmp_path / "a" / "first", "bosch"),
        search(tmp_path / "a" / "second", "bosch"),
        save(tmp_path / "a" / "dcam@0.5.json", {"method": "dcam"}),
        save(tmp_path / "a" / "mine.json"),
        save(tmp_path / "b" / "mine.json"),
    ]
    assert list(name_masks(load_masks(paths))) == ["first", "second", "dcam", str(paths[3]), str(paths[4])]
    assert list(name_masks(load_masks(paths[1:4]))) == ["bosch", "dcam", "mine"]


def test_a_mask_given_twice_is_refused(tmp_path):
    path = save(tmp_path / "mine.json")
    with pytest.raises(BoschError, match=r"mine\.json is given 2 times"):
        name_masks(load_masks([path, path]))


@pytest.mark.parametrize(
    "origin",
    [
        None,
        [],
        "razor",
        {"method": 7},
        {"settings": []},
        {"method": "a\nb"},
        {"method": "\x1b[2J"},
        {"method": "x" * 81},
    ],
    ids=["none", "list", "text", "number", "no settings", "two lines", "terminal control", "long"],
)
def test_a_name_that_cannot_be_shown_gives_way_to_the_files(tmp_path, origin):
    found = load_mask(save(tmp_path / "mine.json", origin))
    assert (found.method, found.model, found.model_hash) == (None, None, None)
    assert list(name_masks([found])) == ["mine"]


def test_layouts_must_be_the_same_and_both_files_are_named(tmp_path):
    other = sliding([(0, 0)], HeadLayout((2, 2)))
    paths = [save(tmp_path / "one.json"), save(tmp_path / "two.json", mask=other)]
    with pytest.raises(BoschError, match=r"one\.json is for 5 layers with 3, 0, .*two\.json for 2 layers x 2 KV heads"):
        load_masks(paths)


def test_groups_by_ratio_smallest_first(tmp_path):
    sizes = {"a": 3, "b": 1, "c": 3}
    units = list(LAYOUT.units())
    files = load_masks([save(tmp_path / f"{name}.json", mask=sliding(units[:n])) for name, n in sizes.items()])
    assert [[file.stem for file in group] for group in by_ratio(files)] == [["b"], ["a", "c"]]


def test_a_model_is_named_where_all_masks_agree_on_it(tmp_path):
    tiny = load_mask(search(tmp_path / "run", "bosch"))
    unknown = load_mask(save(tmp_path / "mine.json"))
    assert model_name([tiny]) == "tiny"
    assert model_name([tiny, unknown]) == model_name([unknown]) == str(LAYOUT)


class Marker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read it: No such file"),
        (b"", "not valid JSON"),
        (b"[]", "not a mask file"),
        (b'{"schema": "bosch.mask/1"}', "lacks full, sinks"),
        (json.dumps(HeadMask.all_full(HeadLayout((0, 0)), 4).to_json()).encode(), "the mask has no units"),
        (MASK_TEXT := json.dumps(MASK.to_json()).replace("true", "1", 1).encode(), r"unit \(0, 1\) of the mask is 1"),
        (MASK_TEXT.replace(b"7", b"NaN", 1), "NaN is not a number"),
        (MASK_TEXT.replace(b"[3, 0, 5, 2, 1]", b"[1000000000]"), "expected an integer from 0 to 10000"),
    ],
    ids=["missing", "empty", "list", "bare", "no units", "number", "nan", "huge"],
)
def test_what_is_no_mask_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "mask.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BoschError, match=rf"mask\.json: .*{message}"):
        load_mask(path)


def test_a_pickle_is_not_loaded(tmp_path):
    path, marker = tmp_path / "mask.json", tmp_path / "marker"
    path.write_bytes(pickle.dumps(Marker(marker)))
    with pytest.raises(BoschError, match="not valid JSON"):
        load_mask(path)
    assert not marker.exists()


def test_a_directory_without_a_mask_is_refused(tmp_path):
    with pytest.raises(BoschError, match=r"holds no mask\.json; expected a mask file or the directory of a finished"):
        load_mask(tmp_path)

"""`bosch analyze` from the command line to its files."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from masks_by_hand import LAYOUT, WINDOW, sliding, squeezed

from bosch.cli import analyze, app, main
from bosch.heads import HeadLayout, HeadMask
from bosch.scoring.objective import Cost
from bosch.selectors.method import Measured
from bosch.selectors.unit_scores import save_unit_scores

UNITS = list(LAYOUT.units())
SMALL = {"dcam": sliding(UNITS[:3]), "razor": sliding(UNITS[1:4]), "bosch": sliding([(4, 0), (0, 1), (0, 2)])}
LARGE = {"dcam": sliding(UNITS[:6]), "razor": sliding(UNITS[5:11]), "bosch": sliding(UNITS[1:7])}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Masks of two ratios and of two models, as a comparison leaves them; unit scores; names are relative."""
    monkeypatch.chdir(tmp_path)
    for model in ("8b", "14b"):
        Path(model).mkdir()
        for ratio, masks in ((0.25, SMALL), (0.5, LARGE)):
            for method, mask in masks.items():
                other = mask.assign({(0, 2): True, (3, 1): False}) if model == "14b" and method == "dcam" else mask
                other.save(f"{model}/{method}@{ratio}.json", {"method": method, "model": f"some/{model}"})
    scores = {unit: 10.0 - number for number, unit in enumerate(UNITS)}
    save_unit_scores(Path("razor.json"), Measured(scores, Cost(0, 1.0, 1.0)), {"window": WINDOW, "sinks": 0})


def files(model: str, ratio: float | str = 0.25, methods: tuple[str, ...] = ("dcam", "razor", "bosch")) -> list[str]:
    return [f"{model}/{method}@{ratio}.json" for method in methods]


def run(*words: object) -> int:
    return main(["analyze", *map(str, words)])


def rows(path: str) -> list[list[str]]:
    return list(csv.reader(Path(path).open(newline="")))


def names(directory: str) -> set[str]:
    """Of what a directory holds, beside what every directory of results does."""
    return {path.name for path in Path(directory).iterdir()} - {"run.json", ".lock"}


def test_overlap_of_one_model(capsys):
    """dcam and razor share 2 of 4 units; dcam and bosch 2 of 4; razor and bosch 2 of 4 at a ratio of 3/11."""
    assert run("overlap", *files("8b"), "--output", "out") == 0
    assert names("out") == {"overlap.json", "overlap.csv", "overlap.png", "overlap.svg"}
    (triangle,) = json.loads(Path("out/overlap.json").read_text())["triangles"]
    assert (triangle["triangle"], triangle["model"]) == ("both", "8b")
    (group,) = triangle["groups"]
    assert [mask["name"] for mask in group["masks"]] == ["dcam", "razor", "bosch"]
    assert group["distances"] == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    assert rows("out/overlap.csv")[1] == ["both", "8b", "dcam", str(3 / 11), "razor", str(3 / 11), "0.5"]
    out = squeezed(capsys.readouterr().out)
    assert "| ratio 0.273 (random masks: 0.82) | dcam | razor | bosch |" in out
    assert "| razor | 0.50 | | 0.50 |" in out


def test_overlap_of_two_models_matches_masks_by_name(capsys):
    """In the other model dcam slides (0, 0), (0, 1), (3, 1): it shares one of five units with razor, one with bosch."""
    assert run("overlap", *files("8b"), "--upper", *reversed(files("14b")), "--output", "out") == 0
    lower, upper = json.loads(Path("out/overlap.json").read_text())["triangles"]
    assert (lower["triangle"], lower["model"], upper["triangle"], upper["model"]) == ("lower", "8b", "upper", "14b")
    assert [mask["name"] for mask in upper["groups"][0]["masks"]] == ["dcam", "razor", "bosch"]
    assert upper["groups"][0]["distances"][0] == [0, 0.8, 0.8]
    out = squeezed(capsys.readouterr().out)
    assert "lower triangle: 8b; upper triangle: 14b" in out
    assert "| dcam | | 0.80 | 0.80 |" in out
    assert "| razor | 0.50 | | 0.50 |" in out


def test_overlap_by_ratio_is_a_heat_map_for_each(capsys):
    masks = files("8b", 0.5) + files("8b")
    assert run("overlap", *masks, "--by-ratio", "--output", "out") == 0
    groups = json.loads(Path("out/overlap.json").read_text())["triangles"][0]["groups"]
    assert [[mask["ratio"] for mask in group["masks"]] for group in groups] == [[3 / 11] * 3, [6 / 11] * 3]
    assert groups[1]["distances"][0] == pytest.approx([0, 1 - 1 / 11, 1 - 5 / 7])
    assert len(rows("out/overlap.csv")) == 1 + 2 * 3
    assert squeezed(capsys.readouterr().out).count("| ratio ") == 2


def test_overlap_across_ratios_names_masks_by_file(capsys):
    assert run("overlap", "8b/dcam@0.25.json", "8b/dcam@0.5.json", "--output", "out") == 0
    assert "| | dcam@0.25 | dcam@0.5 |" in squeezed(capsys.readouterr().out)


def test_turnover_of_adjacent_ratios(capsys):
    """bosch loses (4, 0) of its three units; two of three could... all three could leave: 5 units stay full."""
    assert run("turnover", "8b/bosch@0.5.json", "8b/bosch@0.25.json", "--output", "out") == 0
    (pair,) = json.loads(Path("out/turnover.json").read_text())["pairs"]
    assert (pair["smaller"], pair["larger"]) == ("bosch@0.25", "bosch@0.5")
    assert (pair["turnover"], pair["maximum"], pair["normalized"]) == (1 / 3, 1, 1 / 3)
    assert pair["departed"] == [[4, 0]]
    assert rows("out/turnover.csv")[1][2:] == [str(3 / 11), str(6 / 11), "3", "6", "1", str(1 / 3), "1.0", str(1 / 3)]
    assert "| 0.273 → 0.545 | 1 of 3 | 33% | 100% | 33% |" in squeezed(capsys.readouterr().out)


def test_turnover_needs_no_directory(capsys):
    assert run("turnover", *files("8b", 0.25, ("dcam",)), *files("8b", 0.5, ("dcam",))) == 0
    assert "| 0.273 → 0.545 | 0 of 3 | 0% | 100% | 0% |" in squeezed(capsys.readouterr().out)
    assert names(".") == {"8b", "14b", "razor.json"}


def test_turnover_into_a_mask_without_room_is_not_normalized(capsys):
    HeadMask.all_sliding(LAYOUT, WINDOW).save("all.json")
    assert run("turnover", "8b/bosch@0.25.json", "all.json", "--output", "out") == 0
    assert "| 0.273 → 1 | 0 of 3 | 0% | 0% | |" in squeezed(capsys.readouterr().out)
    assert rows("out/turnover.csv")[1][-1] == ""
    assert json.loads(Path("out/turnover.json").read_text())["pairs"][0]["normalized"] is None


def test_units_of_each_mask(capsys):
    assert run("units", *files("8b"), "--output", "out") == 0
    assert names("out") == {f"{n}.{e}" for n in ("units", "layers") for e in ("csv", "png", "svg")} | {"units.json"}
    assert rows("out/layers.csv") == [
        ["layer", "units", "dcam", "razor", "bosch"],
        ["0", "3", "3", "2", "2"],
        ["1", "0", "0", "0", "0"],
        ["2", "5", "0", "1", "0"],
        ["3", "2", "0", "0", "0"],
        ["4", "1", "0", "0", "1"],
    ]
    assert rows("out/units.csv")[:3] == [
        ["layer", "head", "dcam", "razor", "bosch", "votes"],
        ["0", "0", "1", "0", "0", "1"],
        ["0", "1", "1", "1", "1", "3"],
    ]
    found = json.loads(Path("out/units.json").read_text())
    assert found["masks"]["bosch"]["localized"] == [[0, 1], [0, 2], [4, 0]]
    assert found["votes"][-1] == [4, 0, 1]
    assert "| 0 | 3 | 3 | 2 | 2 |" in squeezed(capsys.readouterr().out)


def test_locality_against_choice(capsys):
    """The scores fall from unit to unit, so the ranking takes the first three: two of bosch's (0, 1), (0, 2), (4, 0).
    Of 24 pairs, (0, 1) and (0, 2) each lose one, (4, 0) loses eight."""
    assert run("locality", "razor.json", "8b/bosch@0.25.json", "--output", "out") == 0
    assert names("out") == {"locality.json", "locality.csv", "locality.png", "locality.svg"}
    found = json.loads(Path("out/locality.json").read_text())
    assert (found["scores"], found["mask"]) == ("razor", "bosch")
    assert (found["agreement"], found["separation"]) == pytest.approx((2 / 3, 14 / 24))
    assert rows("out/locality.csv")[:3] == [
        ["rank", "layer", "head", "score", "sliding"],
        ["1", "0", "0", "10.0", "0"],
        ["2", "0", "1", "9.0", "1"],
    ]
    out = squeezed(capsys.readouterr().out)
    assert "razor would localize 67% of the units that bosch localizes (a random ranking 27%)" in out
    assert "with probability 0.58" in out


ANALYSES = {
    "overlap": (["overlap", *files("8b")], "overlap.csv"),
    "turnover": (["turnover", "8b/bosch@0.25.json", "8b/bosch@0.5.json"], "turnover.csv"),
    "units": (["units", *files("8b")], "layers.svg"),
    "locality": (["locality", "razor.json", "8b/bosch@0.25.json"], "locality.json"),
}


@pytest.mark.parametrize(("words", "file"), ANALYSES.values(), ids=ANALYSES)
def test_files_of_others_are_never_taken_for_results(words, file, capsys):
    Path("out").mkdir()
    Path("out", file).write_text("mine")
    for flags in ([], ["--overwrite"]):
        assert run(*words, "--output", "out", *flags) == 2
        expected = "bosch: error: out is not empty and holds no analysis; choose another directory\n"
        assert capsys.readouterr().err == expected
    assert names("out") == {file}
    assert Path("out", file).read_text() == "mine"


@pytest.mark.parametrize(("words", "file"), ANALYSES.values(), ids=ANALYSES)
def test_a_result_that_is_there_is_kept_unless_it_is_to_be_replaced(words, file, capsys):
    first = ["units", "8b/dcam@0.5.json"] if words[0] != "units" else ["overlap", *files("8b", 0.5)]
    assert run(*first, "--output", "out") == 0
    Path("out", "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    capsys.readouterr()
    assert run(*words, "--output", "out") == 2
    assert capsys.readouterr().err == (
        f"bosch: error: out holds another analysis (its analysis is {first[0]!r}, now it is {words[0]!r}); "
        "choose another directory or --overwrite\n"
    )
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    assert run(*words, "--output", "out", "--overwrite") == 0
    assert run(*words, "--output", "fresh") == 0
    assert names("out") == names("fresh") | {"notes.txt"}
    assert Path("out", file).read_bytes() == Path("fresh", file).read_bytes()
    assert run(*words, "--output", "out") == 0  # the same analysis once more
    assert json.loads(Path("out/run.json").read_text())["schema"] == "bosch.analysis/1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to analyze was named; known: overlap, turnover, replacement, units, locality"),
        (["overlp"], "unknown command 'overlp'; did you mean 'overlap'?"),
        (["overlap"], "the following arguments are required: FILE|RUN, --output"),
        (["overlap", "8b/dcam@0.5.json", "--outptu", "out"], "unknown option '--outptu'; did you mean '--output'?"),
        (["overlap", "8b/dcam@0.5.json", "--output", "out"], "a distance needs two masks, got only dcam"),
        (["overlap", *files("8b"), "--by-ratio", "8b/dcam@0.5.json", "--output", "out"], "unrecognized arguments"),
        (["overlap", *files("8b"), "8b/dcam@0.5.json", "--by-ratio", "--output", "out"], "a distance needs two masks"),
        (["overlap", *files("8b"), "--upper", *files("14b")[:2], "--output", "out"],
         "the two triangles need masks of the same names; the lower has dcam, razor, bosch, the upper dcam, razor"),
        (["overlap", *files("8b"), "--upper", *files("14b"), *files("14b", 0.5), "--by-ratio", "--output", "out"],
         "the two triangles need masks at as many ratios; the lower has 1, the upper 2"),
        (["overlap", "8b", "8b/dcam@0.5.json", "--output", "out"], "8b holds no mask.json"),
        (["overlap", "gone.json", "8b/dcam@0.5.json", "--output", "out"], "gone.json: cannot read it"),
        (["overlap", *files("8b"), "--output", "razor.json"], "razor.json is a file; expected a directory"),
        (["turnover", "8b/dcam@0.5.json"], "turnover needs two masks or more, got 1"),
        (["turnover", *files("8b")], "turnover needs one mask a ratio, but 8b/dcam@0.25.json and 8b/razor@0.25.json"),
        (["locality", "8b/dcam@0.5.json", "8b/bosch@0.5.json", "--output", "out"], "not a file of unit scores"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_leaves_nothing(words, message, capsys):
    before = names(".")
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("bosch: error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert names(".") == before


def test_masks_of_two_layouts_are_refused_by_name(capsys):
    sliding([(0, 0)], HeadLayout((2, 2))).save("other.json")
    for action in ("overlap", "units"):
        assert run(action, "8b/dcam@0.25.json", "other.json", "--output", "out") == 2
        assert "8b/dcam@0.25.json is for 5 layers with 3, 0, 5, 2, 1 KV heads, other.json" in capsys.readouterr().err


@pytest.mark.parametrize("action", analyze.ACTIONS, ids=lambda action: action.name)
def test_help_ends_with_examples_that_parse(action, capsys):
    assert action.examples
    with pytest.raises(SystemExit, match="0"):
        run(action.name, "--help")
    shown = capsys.readouterr().out.rstrip().splitlines()[-len(action.examples) :]
    assert shown == [f"  {example}" for example in action.examples]
    for example in action.examples:
        assert app._make_parser().parse_args(example.split()[1:]).run is action.run


def test_comparing_masks_does_not_wait_for_torch():
    code = (
        "import sys\nimport bosch.analysis, bosch.runs\n"
        "from bosch.analysis import overlap, turnover, units\nprint('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"

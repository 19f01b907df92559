"""`bosch compare` from the command line to its files."""

import csv
import itertools
import json
import re
from statistics import fmean, stdev

import pytest

from bosch.cli import main
from bosch.common.files import read_json
from bosch.common.tables import wilson
from bosch.errors import BoschError
from bosch.experiments.compare import ComparisonDirectory
from bosch.experiments.settings import CompareSettings
from bosch.heads import HeadLayout, HeadMask, quota
from bosch.runs import RunDirectory
from bosch.scoring.evaluator import Evaluator
from drawing import drawn
from marks import slow_after
from small_search import OPTIONS

LAYOUT = HeadLayout((3, 3, 3))
METHODS = ["random-layers", "razor", "fisher", "nll", "bosch-layer", "progressive"]
CHANGING = {"seconds", "time", "full_passes"}
"""A pass costs more where it is the first one after a stop: it finds no states to start from."""


def arguments(model_path, output, *flags, **changes) -> list[str]:
    options = {name: value for name, value in OPTIONS.items() if name not in ("ratio", "budget")}
    options |= {"model": model_path, "ratios": "0.4,0.8", "methods": ",".join(METHODS), "seeds": 2, "budget": 5}
    options |= {"output": output, **changes}
    return ["compare", *itertools.chain(*(("--" + name, str(value)) for name, value in options.items())), *flags]


@pytest.fixture(scope="module")
def finished(model_path, tmp_path_factory) -> ComparisonDirectory:
    """A finished comparison: to look at, not to change."""
    directory = ComparisonDirectory(tmp_path_factory.mktemp("finished") / "compare")
    with drawn():
        assert main(arguments(model_path, directory.path)) == 0
    return directory


def without_changing(data):
    if isinstance(data, dict):
        return {name: without_changing(value) for name, value in data.items() if name not in CHANGING}
    return [without_changing(value) for value in data] if isinstance(data, list) else data


def rows_of(directory: ComparisonDirectory) -> list[dict]:
    return read_json(directory.rows)["rows"]


def test_every_method_is_there_at_every_ratio_with_exactly_its_budget(finished):
    original, sliding, *rows = rows_of(finished)
    assert (original["name"], sliding["name"]) == ("original", "all sliding")
    seen = [(row["name"], row["seed"], HeadMask.load(path_of(finished, row), LAYOUT)) for row in rows]
    assert len(seen) == 2 * (len(METHODS) - 1) + 4
    for row, (_, _, mask) in zip(rows, seen, strict=True):
        assert mask.key() == row["mask"]
        assert mask.num_localized in (quota(0.4, 9), quota(0.8, 9))
    assert {seed for name, seed, _ in seen if name == "random-layers"} == {0, 1}
    assert {seed for name, seed, _ in seen if name != "random-layers"} == {None}


def path_of(directory: ComparisonDirectory, row: dict):
    ratio = min((0.4, 0.8), key=lambda ratio: abs(ratio - row["ratio"]))
    return directory.mask(row["name"], ratio, row["seed"])


def test_cost_is_the_methods_own(finished, model_path, tmp_path):
    """What others had asked before does not make a method cheaper, nor dearer."""
    rows = {(row["name"], round(row["ratio"], 2)): row["cost"] for row in rows_of(finished)}
    run = RunDirectory(tmp_path / "run")
    search = [word if word != "compare" else "search" for word in arguments(model_path, run.path)]
    for name in ("--ratios", "--methods", "--seeds"):
        at = search.index(name)
        del search[at : at + 2]
    assert main([*search, "--ratio", "0.4", "--method", "progressive"]) == 0
    assert read_json(run.scores)["facts"]["evaluations"] == rows["progressive", 0.44]["evaluations"]
    assert rows["fisher", 0.44]["full_passes"] == 4
    assert rows["fisher", 0.44] == rows["fisher", 0.89]
    assert rows["nll", 0.44]["evaluations"] == 1 + 9
    assert rows["random-layers", 0.44] == {"evaluations": 0, "full_passes": 0, "seconds": 0}


def test_tables_and_spreadsheet_say_what_the_rows_say(finished, capsys):
    rows = rows_of(finished)
    report = finished.report.read_text()
    assert [line for line in report.splitlines() if line.startswith("## ")] == ["## Ratio 0.444", "## Ratio 0.889"]
    table = re.split(r"^## ", report, flags=re.M)[1]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    lines = {name: others for name, *others in cells}
    for row in rows:
        if row["name"] == "progressive" and round(row["ratio"], 3) == 0.444:
            assert lines["progressive"][0] == f"{row['heldout']['accuracy']:.2f}"
            assert lines["progressive"][2] == f"{row['heldout']['nll']:.3f}"
    chance = [
        row["heldout"]["accuracy"] for row in rows if row["name"] == "random-layers" and round(row["ratio"], 3) == 0.444
    ]
    assert lines["random-layers"][:2] == [f"{fmean(chance):.2f} ± {stdev(chance):.2f}", "2 seeds"]
    assert list(lines)[2] == "original"
    assert list(lines)[-1] == "all sliding"
    with finished.csv.open() as file:
        read = list(csv.DictReader(file))
    assert [line["method"] for line in read] == [row["name"] for row in rows]
    assert [float(line["nll"]) for line in read] == [row["heldout"]["nll"] for row in rows]
    assert float(read[0]["low"]) == wilson(rows[0]["heldout"]["accuracy"], 3)[0]
    assert all((finished.path / f"compare.{kind}").stat().st_size > 10_000 for kind in ("png", "svg"))


def test_the_same_command_changes_nothing_and_runs_nothing(finished, model_path, monkeypatch, capsys):
    before = {path: path.read_bytes() for path in finished.path.rglob("*.json*") if path.parent != finished.masks}
    monkeypatch.setattr(Evaluator, "_run", None)
    monkeypatch.setattr("bosch.selectors.static.ranking.gather", None)
    monkeypatch.setattr("bosch.selectors.static.ranking.gather_gradients", None)
    assert main(arguments(model_path, finished.path)) == 0
    for path, content in before.items():
        if path == finished.rows:
            assert without_changing(read_json(path)) == without_changing(json.loads(content))
        else:
            assert path.read_bytes() == content
    assert "| progressive" in capsys.readouterr().out


@pytest.mark.parametrize("moment", slow_after(1, [7, 0, 40]))
def test_a_stopped_comparison_goes_on(finished, model_path, tmp_path, monkeypatch, moment):
    evaluate, count = Evaluator._run, itertools.count()

    def interrupted(self, group, mask):
        if next(count) == moment:
            raise KeyboardInterrupt
        return evaluate(self, group, mask)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "_run", interrupted)
        assert main(arguments(model_path, tmp_path)) == 130
    assert main(arguments(model_path, tmp_path)) == 0
    again = ComparisonDirectory(tmp_path)
    assert without_changing(rows_of(again)) == without_changing(rows_of(finished))
    masks = re.findall(r'"mask":"([01.]+)"', again.journal.read_text())
    assert len(set(masks)) == len(masks)


def test_unit_scores_of_something_else_are_refused(finished, model_path, tmp_path, capsys):
    directory = ComparisonDirectory(tmp_path / "new")
    assert main(arguments(model_path, directory.path, methods="razor")) == 0
    path = directory.unit_scores / "razor.json"
    scores = read_json(path)
    for change, message in (
        ({"origin": {**scores["origin"], "window": 5}}, "was measured on another model, other examples or another win"),
        ({"scores": scores["scores"][1:]}, "its units are not those of this model, 3 layers x 3 KV heads"),
        ({"scores": "none"}, "razor.json: "),
        ({"schema": "other"}, "not a file of unit scores"),
        ({"scores": [[0, 0, 10**400]]}, "razor.json: "),
    ):
        path.write_text(json.dumps({**scores, **change}))
        directory.report.unlink(missing_ok=True)  # a finished one reads them no more
        capsys.readouterr()
        assert main(arguments(model_path, directory.path, methods="razor")) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1


def test_a_search_is_no_comparison(finished, model_path, capsys):
    search = ["search", "--model", str(model_path), "--ratio", "0.5", "--window", "4", "--output", str(finished.path)]
    assert main(search) == 2
    assert (
        "run.json is not of a search (expected the schema 'bosch.run/1'); choose another directory"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("razr",)}, "unknown method 'razr'; did you mean 'razor'"),
        ({"methods": ()}, "at least one ratio and one method"),
        ({"ratios": ()}, "at least one ratio and one method"),
        ({"ratios": (0.5, 1.5)}, "ratio must be a number from 0 .* got 1.5"),
        ({"seeds": 0}, "seeds must be an integer of at least 1, got 0"),
        ({"window": 512}, "a window of 512 tokens covers examples of 512 tokens whole"),
    ],
)
def test_what_is_out_of_range_is_refused(changes, message):
    with pytest.raises(BoschError, match=message):
        CompareSettings(**{"model": "m", "window": 4, **changes})


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    [(0.5, 10, 0.2366, 0.7634), (0.0, 10, 0.0, 0.2775), (1.0, 24, 0.8620, 1.0), (0.9, 100, 0.8256, 0.9448)],
)
def test_wilson_intervals_are_those_of_the_tables(share, count, low, high):
    """Values from published tables of the Wilson score interval without continuity correction."""
    assert wilson(share, count) == pytest.approx((low, high), abs=5e-5)

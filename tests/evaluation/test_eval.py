"""`bosch eval` from the command line to its files, on the tiny trained model."""

import csv
import itertools
import json
import sys
from statistics import fmean

import pytest
import torch
from torch.nn.functional import cross_entropy

from bosch.cli import main
from bosch.common.files import read_json
from bosch.common.tables import wilson
from bosch.deploy.hybridize import hybridize
from bosch.evaluation import needles, parts
from bosch.evaluation.needle_report import _share_beyond, depth_table
from bosch.evaluation.rows import EvalRows, Row
from bosch.heads import HeadMask
from drawing import drawn
from evaluation.conftest import MASK
from evaluation.local_data import document, problem, write_lines
from small_search import snapshot
from tiny_checkpoint import TINY

OPTIONS = {"tasks": "niah", "lengths": "233,311", "examples": 3, "dtype": "float32", "new_tokens": 9}


def arguments(output, *words, **changes) -> list[str]:
    options = {**OPTIONS, "output": output, **changes}
    named = itertools.chain(*(("--" + name.replace("_", "-"), str(value)) for name, value in options.items()))
    return ["eval", *map(str, words), *named]


@pytest.fixture(scope="module")
def evaluated(mask_path, tmp_path_factory):
    """The tiny model and one mask on all needle tasks: to look at, not to change."""
    path = tmp_path_factory.mktemp("eval") / "run"
    with drawn():
        assert main([*arguments(path, TINY, mask=mask_path), "--generate"]) == 0
    return path


def test_every_model_has_every_task_at_every_length(evaluated):
    rows = EvalRows.load(evaluated / "rows.json")
    tasks = ["niah_single_1", "niah_single_2", "niah_single_3"]
    tasks += ["niah_multikey_1", "niah_multikey_2", "niah_multikey_3"]
    expected = [(name, task, length) for name in ("tiny", "by-hand") for length in (233, 311) for task in tasks]
    assert [(row.target, row.task, row.length) for row in rows.rows] == expected
    assert all(row.num_examples == len(row.examples) == 3 for row in rows.rows)
    assert all(row.scores.keys() == {"accuracy", "nll", "generated"} for row in rows.rows)
    assert (rows.models["tiny"]["ratio"], rows.models["tiny"]["window"]) == (None, None)
    assert (rows.models["by-hand"]["ratio"], rows.models["by-hand"]["window"]) == (0.5, 7)


def test_tables_average_as_the_paper_does(evaluated):
    rows = [row for row in EvalRows.load(evaluated / "rows.json").rows if (row.target, row.length) == ("tiny", 233)]
    score = {row.task.removeprefix("niah_"): 100 * row.scores["accuracy"] for row in rows}
    single = fmean(score[f"single_{number}"] for number in (1, 2, 3))
    multikey = fmean(score[f"multikey_{number}"] for number in (1, 2, 3))
    total = fmean(score.values())
    assert 0 < total < 100
    low, high = wilson(total / 100, 18)
    cells = [
        *(f"{value:.1f}" for value in (*score.values(), single, multikey, total)),
        f"{100 * low:.0f}-{100 * high:.0f}",
    ]
    cells.append(f"{fmean(row.scores['nll'] for row in rows):.3f}")
    report = (evaluated / "report.md").read_text()
    section = report.partition("## Needles at 233 tokens, teacher-forced")[2]
    line = next(line for line in section.splitlines() if line.startswith("| tiny"))
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["tiny", *cells, ""]
    line = next(line for line in section.splitlines() if line.startswith("| by-hand"))
    rows = [row for row in EvalRows.load(evaluated / "rows.json").rows if (row.target, row.length) == ("by-hand", 233)]
    beyond = [example["distance"] > 6 * (7 - 1) + 2 for row in rows for example in row.examples]
    assert line.strip("| ").endswith(f" {fmean(beyond):.0%}")
    assert "generated" in report
    assert "depth of the needle against the length](eval-depths-0-tiny.png)" in report


def test_the_spreadsheet_has_every_score(evaluated):
    with (evaluated / "rows.csv").open() as file:
        lines = list(csv.DictReader(file))
    rows = EvalRows.load(evaluated / "rows.json").rows
    assert len(lines) == 3 * len(rows)
    assert [float(line["value"]) for line in lines] == [score for row in rows for score in row.scores.values()]
    assert {(line["model"], line["ratio"], line["window"]) for line in lines} == {
        ("tiny", "", ""),
        ("by-hand", "0.5", "7"),
    }


def test_pictures_are_there_for_each_model(evaluated):
    names = sorted(path.name for path in evaluated.glob("eval-*.png"))
    assert names == ["eval-depths-0-tiny.png", "eval-depths-1-by-hand.png", "eval-lengths.png"]
    assert all((evaluated / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_needles_beyond_reach_are_those_further_back():
    examples = tuple({"distance": distance} for distance in (10, 38, 39, 100, 101))
    row = Row("m", "niah", "a", 128, {}, 5, examples=examples)
    assert _share_beyond([row], 38) == "60%"
    assert _share_beyond([row], None) == ""


def test_a_depth_table_is_the_share_in_each_tenth():
    def row(task, length, *pairs):
        examples = tuple({"depth": depth, "accuracy": hit} for depth, hit in pairs)
        return Row("m", "niah", task, length, {"accuracy": 0.0}, len(pairs), examples=examples)

    rows = [row("a", 512, (0.0, True), (0.1, False), (0.99, True)), row("b", 512, (0.05, False), (1.0, True))]
    lengths, table = depth_table([*rows, row("a", 256, (0.55, True))], "accuracy")
    assert lengths == [256, 512]
    assert table[0] == [None, 0.5]
    assert table[1] == [None, 0.0]
    assert table[5] == [1.0, None]
    assert table[9] == [None, 1.0]
    assert all(table[tenth] == [None, None] for tenth in (2, 3, 4, 6, 7, 8))


@pytest.mark.slow
def test_a_stopped_evaluation_goes_on_after_its_last_whole_part(evaluated, mask_path, tmp_path, monkeypatch):
    asked = []
    measure = needles.measure_needles

    def counted(model, tokenizer, task, length, *rest):
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.append((task, length))
        return measure(model, tokenizer, task, length, *rest)

    command = [*arguments(tmp_path / "run", TINY, mask=mask_path), "--generate"]
    monkeypatch.setattr(parts, "measure_needles", counted)
    assert main(command) == 130
    assert len(EvalRows.load(tmp_path / "run" / "rows.json").rows) == 4
    monkeypatch.setattr(parts, "measure_needles", lambda *given: asked.append(given[2:4]) or measure(*given))
    assert main(command) == 0
    assert len(asked) == 24
    found, expected = (EvalRows.load(path / "rows.json").rows for path in (tmp_path / "run", evaluated))
    assert [(row.target, row.task, row.length, row.examples) for row in found] == [
        (row.target, row.task, row.length, row.examples) for row in expected
    ]
    before = {name: content for name, (_, content) in snapshot(tmp_path / "run").items() if "rows" in name}
    assert main([*command, "--batch-tokens", "100"]) == 0  # costs may change; nothing is measured again
    assert len(asked) == 24
    after = {name: content for name, (_, content) in snapshot(tmp_path / "run").items() if "rows" in name}
    assert before == after


def test_other_settings_and_other_weights_are_refused(tmp_path, capsys):
    command = arguments(tmp_path / "run", TINY, tasks="niah_single_1", lengths=150, examples=2)
    assert main(command) == 0
    assert main([*command, "--seed", "1"]) == 2
    assert "holds another evaluation (its seed is 0, now it is 1)" in capsys.readouterr().err
    assert main([*command, "--seed", "1", "--overwrite"]) == 0
    data = read_json(tmp_path / "run" / "rows.json")
    rows = EvalRows.load(tmp_path / "run" / "rows.json")
    changed = {"tiny": {**data["models"]["tiny"], "model_hash": "0" * 64}}
    EvalRows(changed, ()).save(tmp_path / "run" / "rows.json")
    assert main([*command, "--seed", "1"]) == 2
    assert "the rows of tiny so far are of a model with model_hash '000" in capsys.readouterr().err
    assert rows.rows


@pytest.mark.slow
def test_windows_are_those_of_the_same_mask(tiny, mask_path, exported_half, tmp_path):
    """A mask, the exported hybrid of it, and the mask with another window written into it."""
    options = {"tasks": "niah_single_1", "lengths": 149, "examples": 4}
    for name, words, changes in (
        ("by-hand", (TINY,), {"mask": mask_path}),
        ("hybrid", (TINY, exported_half), {}),
    ):
        assert main([*arguments(tmp_path / name, *words, windows="3,29", **options, **changes)]) == 0
        rows = EvalRows.load(tmp_path / name / "rows.json")
        assert [row.target for row in rows.rows] == ["tiny", f"{name}, W = 3", f"{name}, W = 29"]
        for window in (3, 29):
            mask = HeadMask(MASK.layout, MASK.full, window, MASK.sinks)
            mask.save(tmp_path / "other.json", {"method": "other"})
            output = tmp_path / f"{name}{window}"
            assert main(arguments(output, TINY, mask=tmp_path / "other.json", **options)) == 0
            expected = next(row for row in EvalRows.load(output / "rows.json").rows if row.target == "other")
            found = next(row for row in rows.rows if row.target == f"{name}, W = {window}")
            assert rows.models[found.target]["window"] == window
            assert found.scores["nll"] == pytest.approx(expected.scores["nll"], abs=1e-4)
        assert len({row.scores["nll"] for row in rows.rows}) == 3
        assert (tmp_path / name / "eval-windows.png").is_file()


def test_longbench_and_gsm8k_from_local_files(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write_lines(data / "trec.jsonl", [document("trec", all_classes=["a", "b"], answers=["a"]) for _ in range(3)])
    write_lines(data / "gsm8k.jsonl", [problem(1)])
    write_lines(data / "gsm8k_train.jsonl", [problem(number) for number in range(10, 15)])
    output = tmp_path / "run"
    assert main([*arguments(output, TINY, tasks="trec,gsm8k", benchmarks=data, limit=2)]) == 0
    rows = EvalRows.load(output / "rows.json").rows
    assert [(row.task, row.num_examples, row.is_limited) for row in rows] == [("trec", 2, True), ("gsm8k", 1, True)]
    report = (output / "report.md").read_text()
    assert "only the first examples of a task were asked: not a result" in report
    assert "| **Math Reasoning** |" in report
    assert "| **Average** |  | incomplete |" in report


def test_perplexity_from_a_text_file(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the special magic number for happy cat is : 5 8 3 1 . " * 60)
    output = tmp_path / "run"
    assert main(arguments(output, TINY, tasks="perplexity", text=text, lengths=200, examples=2)) == 0
    (row,) = EvalRows.load(output / "rows.json").rows
    assert list(row.scores) == ["nll", "nll 0-63", "nll 64-127", "nll 128-199"]
    assert row.scores["nll 128-199"] < row.scores["nll 0-63"]  # it repeats itself
    assert "NLL of 2 texts of 200 tokens" in (output / "report.md").read_text()


def test_own_examples_from_a_file(tiny, tmp_path):
    """Of the file every second pair is held out; the scores are those of plain passes over these."""
    pairs = [("happy cat is : 5 8 3 1 . happy cat is :", "5 8 3 1"), ("one two three", "four five")] * 2
    pairs = [(f"{number} {prompt}", answer) for number, (prompt, answer) in enumerate(pairs)]
    file = write_lines(tmp_path / "mine.jsonl", [{"prompt": prompt, "answer": answer} for prompt, answer in pairs])
    command = arguments(tmp_path / "run", TINY, tasks="own", data=file, examples=2)
    assert main(command) == 0
    (row,) = EvalRows.load(tmp_path / "run" / "rows.json").rows
    assert (row.group, row.task, row.length, row.num_examples) == ("own", "own", None, 2)
    model, tokenizer = tiny
    hits, nlls = [], []
    for prompt, answer in pairs[1::2]:
        ids = tokenizer(f"{prompt} {answer}", return_tensors="pt").input_ids
        start = len(tokenizer(prompt).input_ids)
        with torch.no_grad():
            logits = model(ids).logits[0, start - 1 : -1].double()
        hits.append(bool((logits.argmax(-1) == ids[0, start:]).all()))
        nlls.append(float(cross_entropy(logits, ids[0, start:])))
    assert row.scores == pytest.approx({"accuracy": fmean(hits), "nll": fmean(nlls)}, abs=1e-4)
    report = (tmp_path / "run" / "report.md").read_text()
    assert "## Your own 2 examples" in report
    before = snapshot(tmp_path / "run")["rows.json"]
    assert main(command) == 0  # nothing is measured again
    assert snapshot(tmp_path / "run")["rows.json"] == before


def test_an_evaluation_of_an_earlier_version_goes_on(tmp_path):
    """`benchmarks` was called `data`, and there were no examples of one's own."""
    command = arguments(tmp_path / "run", TINY, tasks="niah_single_1", lengths=150, examples=2, benchmarks="there")
    assert main(command) == 0
    data = read_json(tmp_path / "run" / "run.json")
    data["settings"]["data"] = data["settings"].pop("benchmarks")
    (tmp_path / "run" / "run.json").write_text(json.dumps(data))
    before = snapshot(tmp_path / "run")["rows.json"]
    assert main(command) == 0
    assert snapshot(tmp_path / "run")["rows.json"] == before


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ((TINY,), {"tasks": "niah_singel_1"}, "unknown task 'niah_singel_1'; did you mean 'niah_single_1'?"),
        ((TINY,), {"tasks": "niahh"}, "did you mean 'niah'?"),
        ((TINY,), {"tasks": "longbench"}, "longbench need the published JSONL files; expected their directory as"),
        ((TINY,), {"tasks": "qasper", "benchmarks": "nowhere"}, "there is no nowhere/qasper.jsonl; unpack LongBench"),
        ((TINY,), {"tasks": "gsm8k", "benchmarks": "nowhere"}, "there is no nowhere/gsm8k.jsonl; put GSM8K"),
        ((TINY,), {"tasks": "perplexity"}, "expected a UTF-8 file as --text"),
        ((TINY,), {"tasks": "perplexity", "text": "nowhere.txt"}, "cannot read the text nowhere.txt"),
        ((TINY,), {"tasks": "own"}, "the task own is about examples of yours; expected their file as --data"),
        ((TINY,), {"haystack": "nowhere.txt"}, "cannot read the haystack nowhere.txt"),
        ((TINY,), {"lengths": 1025}, "the model has 1024 positions, and 1025 are asked for; choose shorter --lengths"),
        ((TINY,), {"lengths": 0}, "length must be an integer of at least 1, got 0"),
        ((TINY, TINY), {}, "is given twice; expected different targets"),
        ((TINY, "other"), {"mask": "m.json"}, "a mask is put on one model, got 2 targets"),
        ((TINY,), {"mask": "nowhere.json"}, "nowhere.json: cannot read it"),
        (("./nowhere",), {}, "no such directory: ./nowhere"),
        ((TINY,), {"include": "."}, "expected --harness with --include"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(words, changes, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments("run", *words, **changes)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run" / "rows.json").exists()


def test_a_missing_extra_is_named_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert main([*arguments(tmp_path / "run", TINY), "--harness"]) == 2
    error = capsys.readouterr().err
    assert "--harness needs lm_eval, which cannot be imported" in error
    assert "pip install 'bosch-swa[eval]'" in error
    assert not (tmp_path / "run").exists()


def test_generating_needs_positions_for_the_answer_too(tmp_path, capsys):
    assert main([*arguments(tmp_path / "run", TINY, lengths=1020), "--generate"]) == 2
    assert "the model has 1024 positions, and 1029 are asked for" in capsys.readouterr().err


def test_yarn_gives_the_positions_that_are_asked_for(tmp_path):
    output = tmp_path / "run"
    assert main(arguments(output, TINY, tasks="niah_single_1", lengths=1100, examples=1, yarn=2)) == 0
    assert EvalRows.load(output / "rows.json").models["tiny"]["positions"] == 2048


def test_a_mask_file_is_put_on_the_model(tiny, mask_path, evaluated):
    """The row of the mask is the score of that very hybrid."""
    from bosch.calibration import make_examples
    from bosch.models import load_model

    hybrid = hybridize(load_model(str(TINY), dtype="float32", device="cpu")[0], MASK)
    options = {"tasks": ["niah_single_2"], "lengths": [233], "num_examples": 3, "seed": 0, "split": "heldout"}
    made = make_examples(tiny[1], **options).examples
    expected = needles.score_answers(hybrid, made, 10_000).nll
    rows = EvalRows.load(evaluated / "rows.json").rows
    found = next(row for row in rows if (row.target, row.task, row.length) == ("by-hand", "niah_single_2", 233))
    assert found.scores["nll"] == pytest.approx(expected, abs=1e-4)

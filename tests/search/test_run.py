"""`bosch search` from the command line to its files: values first, then everything that a user may get wrong."""

import contextlib
import fcntl
import itertools
import math
import re
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

import bosch
from bosch.calibration import Example, make_examples
from bosch.cli import main
from bosch.common.files import read_json
from bosch.common.provenance import model_hash
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.runs import RunDirectory
from bosch.scoring.evaluator import Evaluator
from drawing import drawn
from small_search import OPTIONS, SIZES, make_tokenizer, snapshot, squeezed

LAYOUT = HeadLayout((3, 3, 3))
NUM_LOCALIZED = math.ceil(0.5 * 9)
PROGRAM = Path(sys.executable).with_name("bosch")
PICTURES = {f"{name}.{kind}" for name in ("mask", "sensitivity", "search", "front") for kind in ("png", "svg")}


def masks_in(journal: Path) -> list[str]:
    """The masks of a journal's whole lines, in the order of their evaluation."""
    return re.findall(r'"mask":"([01.]+)".*\n', journal.read_text()) if journal.is_file() else []


def from_key(key: str) -> HeadMask:
    return HeadMask(LAYOUT, tuple(tuple(bit == "1" for bit in row) for row in key.split(".")), OPTIONS["window"])


def without_times(data):
    """A result file without what differs between two machines or two moments."""
    times = {"time", "seconds_this_time", "own_seconds", "num_threads"}
    if isinstance(data, dict):
        return {name: without_times(value) for name, value in data.items() if name not in times}
    return [without_times(value) for value in data] if isinstance(data, list) else data


@contextlib.contextmanager
def disk_with_room_for(num_bytes: int):
    """The system refuses to let any file grow beyond so many bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# What a search leaves.


def test_mask_localizes_exactly_the_quota_and_says_where_it_comes_from(finished, model_path):
    run = RunDirectory(finished)
    mask = HeadMask.load(run.mask, LAYOUT)
    assert (mask.num_localized, mask.window, mask.sinks) == (NUM_LOCALIZED, 4, 0)
    origin = read_json(run.mask)["provenance"]
    assert origin["settings"] == read_json(run.settings)["settings"]
    assert origin["settings"]["model"] == str(model_path)
    assert origin["settings"]["tasks"] == ["niah_single_1", "niah_multikey_1"]
    assert (origin["bosch"], origin["torch"]) == (bosch.__version__, torch.__version__)
    assert origin["model_hash"] == model_hash(AutoModelForCausalLM.from_pretrained(model_path))
    randoms = {row["mask"] for row in read_json(run.scores)["rows"] if row["name"].startswith("random")}
    assert set(masks_in(run.journal)[origin["evaluations"] :]) <= randoms


def test_masks_on_the_way_are_nested(finished):
    run = RunDirectory(finished)
    masks = [HeadMask.load(path, LAYOUT) for path in sorted(run.masks.iterdir())]
    assert [path.name for path in sorted(run.masks.iterdir())] == [f"000{n}.json" for n in range(1, 5)]
    assert [mask.num_localized for mask in masks] == [1, 2, 3, 4]
    assert all(a.localized < b.localized for a, b in itertools.pairwise(masks))


def test_scores_are_those_of_plain_passes(finished, model_path):
    rows = read_json(RunDirectory(finished).scores)["rows"]
    assert [row["name"] for row in rows] == [
        "original",
        "progressive",
        *(f"random {number}" for number in range(1, 6)),
        "all sliding",
        *["progressive on the way"] * 4,
    ]
    assert [from_key(row["mask"]).num_localized for row in rows] == [0, *[NUM_LOCALIZED] * 6, 9, 1, 2, 3, 4]
    decoder = Decoder(AutoModelForCausalLM.from_pretrained(model_path))
    for split, num_examples in (("calibration", 4), ("heldout", 3)):
        examples = make_examples(
            make_tokenizer(),
            tasks=OPTIONS["tasks"].split(","),
            lengths=[OPTIONS["lengths"]],
            num_examples=num_examples,
            seed=0,
            split=split,
        ).examples
        for row in rows:
            if split == "heldout" and row["name"] == "progressive on the way":
                assert split not in row
                continue
            mask = from_key(row["mask"])
            found = row[split]
            hits, nlls = zip(*(plain_score(decoder, example, mask) for example in examples), strict=True)
            assert row["ratio"] == mask.num_localized / 9
            assert found["nll"] == pytest.approx(sum(nlls) / num_examples, abs=1e-4)
            assert found["accuracy"] == sum(hits) / num_examples
            assert found["examples"] == num_examples
            assert list(found["accuracy_by_task"]) == ["niah_single_1 @ 160", "niah_multikey_1 @ 160"]


def plain_score(decoder: Decoder, example: Example, mask: HeadMask) -> tuple[bool, float]:
    ids = torch.tensor([example.input_ids])
    logits = decoder.forward(ids, mask)[0, example.answer_start - 1 : -1].double()
    answer = ids[0, example.answer_start :]
    nlls = -logits.log_softmax(-1)[range(len(answer)), answer]
    return bool((logits.argmax(-1) == answer).all()), float(nlls.mean())


def test_report_shows_the_scores_and_the_pictures(finished):
    run = RunDirectory(finished)
    report, rows = squeezed(run.report.read_text()), read_json(run.scores)["rows"]
    original, ours, *randoms, sliding = [row for row in rows if "heldout" in row]
    for name, row in (("original", original), ("progressive", ours), ("all sliding", sliding)):
        held, seen = row["heldout"], row["calibration"]
        assert (
            f"| {name} | {row['ratio']:.3f} | {held['accuracy']:.2f} | {held['nll']:.3f} "
            f"| {seen['accuracy']:.2f} | {seen['nll']:.3f} |\n"
        ) in report
    nlls = [row["heldout"]["nll"] for row in randoms]
    mean, spread = sum(nlls) / 5, statistics.stdev(nlls)
    assert f"| random KV heads (mean of 5, ± spread) | 0.556 | 0.00 ± 0.00 | {mean:.3f} ± {spread:.3f} |" in report
    assert "100% of the held-out examples ask for what lies further back" in report
    assert {path.name for path in run.path.iterdir() if path.suffix in {".png", ".svg"}} == PICTURES
    assert all(f"]({name})" in report for name in PICTURES if name.endswith(".png"))


def test_pictures_are_pictures(command, finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run")
    (path / "report.md").unlink()
    with drawn():
        assert main(command(path)) == 0
    for picture in map(path.joinpath, PICTURES):
        assert picture.read_bytes().startswith(b"\x89PNG" if picture.suffix == ".png" else b"<?xml")


def test_random_masks_differ_and_the_search_beats_them_on_what_it_saw(finished):
    _, ours, *randoms, _ = [row for row in read_json(RunDirectory(finished).scores)["rows"] if "heldout" in row]
    assert len({row["mask"] for row in randoms}) > 1
    assert ours["calibration"]["nll"] <= min(row["calibration"]["nll"] for row in randoms)


def test_three_stages_leave_the_same_files(command, tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert main(command(run.path, method="bosch")) == 0
    mask, selection = HeadMask.load(run.mask, LAYOUT), read_json(run.selection)
    quotas = selection["stage_2"]["quotas"]
    assert mask.localized_per_layer == tuple(quotas[str(layer)] for layer in range(3))
    assert mask.num_localized == NUM_LOCALIZED
    assert [search["layer"] for search in selection["stage_1"]["searches"]] == [2, 1, 0]
    assert read_json(run.mask)["provenance"]["evaluations"] <= 2 + 2 * 12 * 3
    assert "| bosch | 0.556 |" in squeezed(run.report.read_text())
    assert all((run.path / name).is_file() for name in PICTURES)


@pytest.mark.parametrize(("ratio", "like"), [(0, "original"), (1, "all sliding")])
@pytest.mark.parametrize("method", ["progressive", "bosch", "fisher", "random-layers"])
def test_ratios_at_the_ends(command, tmp_path, method, ratio, like):
    run = RunDirectory(tmp_path / "run")
    assert main(command(run.path, method=method, ratio=ratio)) == 0
    rows = {row["name"]: row for row in read_json(run.scores)["rows"]}
    assert {**rows[method], "name": like} == rows[like]
    assert run.is_finished


# The same command again, and others.


def test_the_same_command_changes_nothing_and_evaluates_nothing(command, finished, monkeypatch, capsys):
    before = snapshot(finished)
    monkeypatch.setattr(Evaluator, "_run", None)
    assert main(command(finished)) == 0
    assert snapshot(finished) == before
    assert "| progressive | 0.556 |" in squeezed(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"ratio": 0.25}, "its ratio is 0.5, now it is 0.25"),
        ({"window": 5}, "its window is 4, now it is 5"),
        ({"sinks": 1}, "its sinks is 0, now it is 1"),
        ({"method": "bosch"}, "its method is 'progressive', now it is 'bosch'"),
        ({"objective": "accuracy"}, "its objective is 'nll', now it is 'accuracy'"),
        ({"tasks": "niah_single_1"}, "its tasks is ['niah_single_1', 'niah_multikey_1'], now it is ['niah_single_1']"),
        ({"lengths": "160,200"}, "its lengths is [160], now it is [160, 200]"),
        ({"seed": 1}, "its seed is 0, now it is 1"),
    ],
)
def test_another_setting_is_refused_by_name(command, finished, changes, difference, capsys):
    before = snapshot(finished)
    assert main(command(finished, **changes)) == 2
    assert f"({difference})" in capsys.readouterr().err
    assert snapshot(finished) == before


def test_overwriting_gives_what_a_new_directory_gives(command, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    assert main(command(tmp_path / "run", "--overwrite", seed=1)) == 0
    assert main(command(tmp_path / "new", seed=1)) == 0
    assert snapshot(tmp_path / "run").keys() == snapshot(tmp_path / "new").keys()
    replaced, new, old = (RunDirectory(path) for path in (tmp_path / "run", tmp_path / "new", finished))
    assert without_times(read_json(replaced.scores)) == without_times(read_json(new.scores))
    assert masks_in(replaced.journal) == masks_in(new.journal)
    assert read_json(new.scores)["facts"]["calibration"] != read_json(old.scores)["facts"]["calibration"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["progressive", "bosch"])
def test_another_process_finds_the_same(command, tmp_path, method):
    here, there = RunDirectory(tmp_path / "here"), RunDirectory(tmp_path / "there")
    options = {"method": method, "ratio": 0.4, "budget": 6}  # few enough that the groups are not tried out whole
    assert main(command(here.path, **options)) == 0
    result = subprocess.run([PROGRAM, *command(there.path, **options)], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert result.stdout.endswith(f"mask: {there.mask}\nreport: {there.report}\n")
    assert masks_in(here.journal) == masks_in(there.journal)
    for name in ("mask.json", "selection.json", "scores.json"):
        assert without_times(read_json(here.path / name)) == without_times(read_json(there.path / name))


def test_ctrl_c_says_so_and_the_same_command_goes_on(command, finished, tmp_path, monkeypatch, capsys):
    evaluate, count = Evaluator._run, itertools.count()

    def interrupted(self, group, mask):
        if next(count) == 11:
            raise KeyboardInterrupt
        return evaluate(self, group, mask)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "_run", interrupted)
        assert main(command(tmp_path)) == 130
    assert capsys.readouterr().err == "bosch: stopped; the same command, run again, resumes\n"
    assert main(command(tmp_path)) == 0
    assert masks_in(tmp_path / "journal.jsonl") == masks_in(finished / "journal.jsonl")
    same = read_json(tmp_path / "scores.json")["rows"]
    assert same == read_json(finished / "scores.json")["rows"]


def test_a_terminal_is_shown_how_far_the_search_is(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(command(tmp_path / "run")) == 0
    shown = capsys.readouterr().err
    for stage in ("anchors", "localizing 5 KV heads", "exchanging KV heads", "scores on both sets"):
        assert f"{stage}: " in shown
    assert "lowest nll" in shown
    assert main(command(tmp_path / "fails", objective="accuracy")) == 2
    assert capsys.readouterr().err.rstrip("\n").split("\n")[-1].startswith("bosch: error: ")


def test_another_model_in_the_same_place_is_refused(command, finished, model_path, tmp_path, capsys):
    model, run = tmp_path / "model", tmp_path / "run"
    shutil.copytree(model_path, model)
    assert main(command(run, model=model)) == 0
    before = snapshot(run)
    changed = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        changed.model.norm.weight[0] += 1
    changed.save_pretrained(model)
    capsys.readouterr()
    assert main(command(run, model=model)) == 2
    assert "was written for another search: its model_hash is" in one_line(capsys)
    assert snapshot(run) == before


# What a user may get wrong: one line, status 2, nothing lost.


def one_line(capsys) -> str:
    """The only line on standard error; nothing is on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bosch: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "no/such/directory"}, "no such directory: no/such/directory"),
        ({"model": "./missing"}, "no such directory: ./missing"),
        ({"model": __file__}, "is a file; give the directory that holds the model's config.json"),
        ({"model": Path(__file__).parent}, "is not a model: the directory has no config.json"),
        ({"ratio": -0.1}, "the ratio must be a number from 0 (all full) to 1 (all sliding), got -0.1"),
        ({"ratio": 1.5}, "the ratio must be a number from 0 (all full) to 1 (all sliding), got 1.5"),
        ({"ratio": "nan"}, "the ratio must be a number from 0 (all full) to 1 (all sliding), got nan"),
        ({"ratio": "inf"}, "the ratio must be a number from 0 (all full) to 1 (all sliding), got inf"),
        ({"ratio": "half"}, "argument --ratio: invalid float value: 'half'"),
        ({"window": 0}, "window must be an integer of at least 1, got 0"),
        ({"window": 160}, "a window of 160 tokens covers examples of 160 tokens whole"),
        ({"window": "four"}, "argument --window: invalid int value: 'four'"),
        ({"sinks": 158}, "a window of 4 tokens and 158 sinks covers examples of"),
        ({"lengths": 20}, "length 20 is too short for niah_single_1: question, needles and answer alone take "),
        ({"lengths": "160,x"}, "argument --lengths: invalid comma-separated int value: '160,x'"),
        ({"lengths": 600}, "tokens, but the model takes at most 512"),
        ({"lengths": ""}, "at least one length and one task"),
        ({"examples": 0}, "examples must be an integer of at least 1, got 0"),
        ({"heldout": 0}, "heldout must be an integer of at least 1, got 0"),
        ({"windw": 4}, "unknown option '--windw'; did you mean '--window'?"),
        ({"method": "boshc"}, "unknown method 'boshc'; did you mean 'bosch'?"),
        ({"objective": "nl"}, "unknown objective 'nl'; did you mean 'nll'?"),
        ({"tasks": "niah_singel_1"}, "unknown task 'niah_singel_1'; did you mean 'niah_single_1'?"),
        ({"dtype": "flaot32"}, "unknown dtype 'flaot32'; did you mean 'float32'?"),
        ({"device": "cdua"}, "cannot use device 'cdua'"),
        ({"memory_gib": "0"}, "memory_gib must be a positive number of GiB, got 0.0"),
        ({"haystack": "no/such/text"}, "cannot read the haystack no/such/text: "),
    ],
)
def test_mistake_is_one_line_and_leaves_no_result(command, tmp_path, changes, message, capsys):
    assert main(command(tmp_path / "run", **changes)) == 2
    assert message in one_line(capsys)
    left = RunDirectory(tmp_path / "run")
    assert not left.has_results
    assert not left.mask.exists()


def test_mistake_does_not_stand_in_the_way_of_the_right_command(command, finished, tmp_path):
    for changes in ({"model": "./missing"}, {"lengths": 20}, {"lengths": 600}, {"dtype": "f32"}):
        assert main(command(tmp_path, **changes)) == 2
    assert main(command(tmp_path)) == 0
    assert masks_in(tmp_path / "journal.jsonl") == masks_in(finished / "journal.jsonl")


def test_unknown_model_without_a_hub(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bosch.models.loading._hub_answers", lambda _: False)
    assert main(command(tmp_path / "run", model="smollm2-135")) == 2
    assert "'smollm2-135' is neither a known model (smollm2-135m), nor a directory, nor" in one_line(capsys)


def test_chat_without_a_template(command, tmp_path, capsys):
    assert main(command(tmp_path / "run", "--chat")) == 2
    assert "the tokenizer has no chat template" in one_line(capsys)


def test_a_model_without_eligible_units(command, tmp_path, capsys):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    config = MistralConfig(vocab_size=len(tokenizer), sliding_window=16, **SIZES)
    MistralForCausalLM(config).save_pretrained(tmp_path / "model")
    capsys.readouterr()
    assert main(command(tmp_path / "run", model=tmp_path / "model")) == 2
    assert one_line(capsys) == (
        "bosch: error: MistralForCausalLM has no unit that can slide: every layer is sliding, linear or latent "
        "already; expected at least one layer of full attention\n"
    )


def test_a_model_with_a_nan_in_it(command, model_path, tmp_path, capsys):
    shutil.copytree(model_path, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(model_path)
    with torch.no_grad():
        model.get_input_embeddings().weight[make_tokenizer().convert_tokens_to_ids("magic")] = math.nan
    model.save_pretrained(tmp_path / "model")
    capsys.readouterr()
    assert main(command(tmp_path / "run", model=tmp_path / "model")) == 2
    assert "its all-sliding self (nll nan full, nan sliding; expected full above sliding)" in one_line(capsys)


def test_examples_that_cannot_tell_full_from_sliding(command, tmp_path, capsys):
    """A random model answers nothing, full or sliding."""
    assert main(command(tmp_path / "run", objective="accuracy")) == 2
    error = one_line(capsys)
    assert "the calibration set cannot tell this model from its all-sliding self (accuracy 0 full, 0 sliding" in error
    assert len(masks_in(tmp_path / "run" / "journal.jsonl")) == 2


def test_a_haystack_that_is_not_utf8(command, tmp_path, capsys):
    (tmp_path / "text").write_bytes(b"caf\xe9")
    assert main(command(tmp_path / "run", haystack=tmp_path / "text")) == 2
    assert f"cannot read the haystack {tmp_path}/text: 'utf-8' codec can't decode byte 0xe9" in one_line(capsys)
    assert not (tmp_path / "run").exists()


def test_an_output_that_is_a_file(command, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(command(tmp_path / "file", "--overwrite")) == 2
    assert "file is a file; expected a directory for the results" in one_line(capsys)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["journal.jsonl", "heldout.jsonl"])
@pytest.mark.parametrize("line", [1, 3])
def test_a_damaged_journal_line_is_named_and_everything_is_kept(command, finished, tmp_path, name, line, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    lines = (run / name).read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"0", b"1", 1)
    (run / name).write_bytes(b"".join(lines))
    before = snapshot(run)
    assert main(command(run)) == 2
    assert f"{run / name} is damaged at line {line}; " in one_line(capsys)
    assert snapshot(run) == before


def test_a_mask_of_another_model(finished):
    path = RunDirectory(finished).mask
    with pytest.raises(BoschError) as error:
        HeadMask.load(path, HeadLayout((4, 4)))
    assert str(error.value) == (
        f"{path}: the mask was made for a model with 3 layers x 3 KV heads, but this model has 2 layers x 4 KV heads"
    )


def test_a_search_that_is_running(command, finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "run")
    before = snapshot(tmp_path / "run")
    with open(tmp_path / "run" / ".lock", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(command(tmp_path / "run")) == 2
    assert f"{tmp_path / 'run'} is in use by another running command; expected one at a time" in one_line(capsys)
    assert snapshot(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "heldout.jsonl", "mask.json", "search.svg"])
def test_a_full_disk_is_one_line_and_the_same_command_goes_on_later(command, finished, tmp_path, name, capsys):
    run = RunDirectory(tmp_path / "run")
    with disk_with_room_for((finished / name).stat().st_size // 2):
        assert main(command(run.path)) == 2
    error = one_line(capsys)
    assert f"cannot write {run.path}" in error
    assert "File too large" in error
    known = masks_in(run.journal)
    assert main(command(run.path)) == 0
    masks = masks_in(run.journal)
    assert masks[: len(known)] == known
    assert len(masks) == len(set(masks))
    assert read_json(run.scores)["rows"] == read_json(finished / "scores.json")["rows"]


@pytest.mark.parametrize("name", ["masks", "scores.json", "sensitivity.png", "report.md"])
def test_something_in_the_way_of_a_result_is_named(command, tmp_path, finished, name, capsys):
    """Found at the very end of a search; its evaluations are kept."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(finished, run.path)
    run.report.unlink()
    if name == "masks":
        shutil.rmtree(run.masks)
        run.masks.write_text("in the way")
    else:
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).mkdir()
    assert main(command(run.path)) == 2
    assert f"{run.path / name}: " in one_line(capsys)
    assert run.journal.read_bytes() == (finished / "journal.jsonl").read_bytes()

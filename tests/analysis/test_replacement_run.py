"""`bosch analyze replacement` on the tiny trained model: two searches as they leave their directories, by hand."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from masks_by_hand import squeezed

from bosch.calibration import make_examples
from bosch.cli import main
from bosch.common.files import read_json
from bosch.common.provenance import model_hash
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.experiments.replacement import ReplacementDirectory
from bosch.experiments.settings import SearchSettings
from bosch.heads import HeadLayout, HeadMask
from bosch.models import load_model
from bosch.runs import RunDirectory
from bosch.scoring.evaluator import Evaluator
from tiny_checkpoint import TINY

LAYOUT = HeadLayout((4,) * 6)
FULL = HeadMask.all_full(LAYOUT, 8)
SMALL = FULL.localize([(0, 0), (0, 1), (2, 3), (5, 0)])
LARGE = FULL.localize([(1, 0), (1, 2), (2, 3), (3, 1), (4, 0), (5, 0), (5, 1)])
"""(0, 0) and (0, 1) departed."""

SETTINGS = SearchSettings(
    model=str(TINY),
    ratio=0.25,
    window=8,
    tasks=("niah_single_1", "niah_single_2"),
    lengths=(128,),
    examples=1,
    heldout=5,
    seed=3,
    dtype="float32",
    device="cpu",
)


@pytest.fixture(scope="module")
def tiny():
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu")
    return Decoder(model), tokenizer


@pytest.fixture
def searches(tiny, tmp_path) -> tuple[Path, Path]:
    """Directories of two finished searches, as far as they are read here."""
    origin = {"model": str(TINY), "model_hash": model_hash(tiny[0].model)}
    for name, mask in (("small", SMALL), ("large", LARGE)):
        run = RunDirectory(tmp_path / name)
        with run.claimed(SETTINGS) as claim:
            claim.begin()
        mask.save(run.mask, {**origin, "settings": dataclasses.asdict(SETTINGS)})
    return tmp_path / "small", tmp_path / "large"


def command(searches: tuple[Path, Path], output: Path, *flags: str) -> list[str]:
    return ["analyze", "replacement", *map(str, searches), "--output", str(output), *flags]


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_settings(run: Path, **changes: object) -> None:
    edit(run / "run.json", settings={**read_json(run / "run.json")["settings"], **changes})


def from_key(key: str) -> HeadMask:
    return dataclasses.replace(FULL, full=tuple(tuple(bit == "1" for bit in row) for row in key.split(".")))


def test_scores_are_those_of_plain_passes_over_the_held_out_set(searches, tiny, tmp_path, capsys):
    decoder, tokenizer = tiny
    assert main(command(searches, tmp_path / "out")) == 0
    out, run = squeezed(capsys.readouterr().out), ReplacementDirectory(tmp_path / "out")
    found = read_json(run.scores)
    assert found["departed"] == [[0, 0], [0, 1]]
    assert [row["name"] for row in found["rows"]] == ["A", "A' seed 0", "A' seed 1", "A' seed 2"]
    heldout = make_examples(
        tokenizer, tasks=SETTINGS.tasks, lengths=(128,), num_examples=5, seed=3, split="heldout"
    ).examples
    nlls, accuracies = [], []
    for row in found["rows"]:
        mask = from_key(row["mask"])
        assert mask.num_localized == LARGE.num_localized
        assert (mask == LARGE) if row["name"] == "A" else {(0, 0), (0, 1)} < mask.localized
        hits, losses = zip(*(plain_score(decoder, example, mask) for example in heldout), strict=True)
        assert row["heldout"]["accuracy"] == sum(hits) / 5
        assert row["heldout"]["nll"] == pytest.approx(sum(losses) / 5, abs=1e-4)
        assert row["heldout"]["examples"] == 5
        accuracies.append(sum(hits) / 5)
        nlls.append(sum(losses) / 5)
    assert f"| A | 0.292 | {accuracies[0]:.2f} | {nlls[0]:.3f} |" in out
    assert f"| A' (mean of 3, ± spread) | 0.292 | {sum(accuracies[1:]) / 3:.2f} ± " in out
    assert f" | {sum(nlls[1:]) / 3:.3f} ± " in out
    saved = [HeadMask.load(run.masks / f"replaced-{seed}.json", LAYOUT) for seed in range(3)]
    assert [mask.key() for mask in saved] == [row["mask"] for row in found["rows"][1:]]
    assert len(run.table.read_text().splitlines()) == 1 + 4


def plain_score(decoder, example, mask) -> tuple[bool, float]:
    ids = torch.tensor([example.input_ids])
    logits = decoder.forward(ids, mask)[0, example.answer_start - 1 : -1].double()
    answer = ids[0, example.answer_start :]
    return bool((logits.argmax(-1) == answer).all()), float(-logits.log_softmax(-1)[range(len(answer)), answer].mean())


def test_a_stopped_test_goes_on_and_evaluates_nothing_twice(searches, tmp_path, monkeypatch, capsys):
    asked: list[str] = []
    evaluate = Evaluator._run

    def evaluate_twice(self, group, mask):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(mask.key())
        return evaluate(self, group, mask)

    monkeypatch.setattr(Evaluator, "_run", evaluate_twice)
    assert main(command(searches, tmp_path / "out")) == 130
    assert not (tmp_path / "out" / "replacement.json").exists()
    monkeypatch.setattr(
        Evaluator, "_run", lambda self, group, mask: asked.append(mask.key()) or evaluate(self, group, mask)
    )
    assert main(command(searches, tmp_path / "out")) == 0
    assert len(asked) == len(set(asked)) == 4
    assert main(command(searches, tmp_path / "out")) == 0
    assert len(asked) == 4
    assert squeezed(capsys.readouterr().out).count("| A | 0.292 |") == 2


def test_another_test_in_the_directory_is_refused_and_replaced_only_on_demand(searches, tmp_path, capsys):
    assert main(command(searches, tmp_path / "out", "--seeds", "1")) == 0
    before = (tmp_path / "out" / "replacement.json").read_bytes()
    assert main(command(searches, tmp_path / "out", "--seeds", "2")) == 2
    assert "holds another replacement test (its replacements is 1, now it is 2)" in capsys.readouterr().err
    assert (tmp_path / "out" / "replacement.json").read_bytes() == before
    assert main(command(searches, tmp_path / "out", "--seeds", "2", "--overwrite")) == 0
    assert len(read_json(tmp_path / "out" / "replacement.json")["rows"]) == 3


def test_the_directory_of_a_search_is_never_taken(searches, capsys):
    before = (searches[1] / "run.json").read_bytes()
    assert main(command(searches, searches[1], "--overwrite")) == 2
    assert "run.json is not of a replacement test" in capsys.readouterr().err
    assert (searches[1] / "run.json").read_bytes() == before


def no_file(small: Path, large: Path) -> None:
    (small / "mask.json").unlink()


def other_model(small: Path, large: Path) -> None:
    edit(small / "mask.json", provenance={"model": "another", "model_hash": "0" * 64})


def both_of_another_model(small: Path, large: Path) -> None:
    for run in (small, large):
        edit(run / "mask.json", provenance={"model": str(TINY), "model_hash": "0" * 64})


def no_origin(small: Path, large: Path) -> None:
    edit(large / "mask.json", provenance={})


def other_window(small: Path, large: Path) -> None:
    edit(small / "mask.json", window=11)


def nested(small: Path, large: Path) -> None:
    edit(small / "mask.json", full=[list(row) for row in FULL.localize([(1, 0)]).full])


def exchanged(small: Path, large: Path) -> None:
    small_text, large_text = (small / "mask.json").read_text(), (large / "mask.json").read_text()
    (small / "mask.json").write_text(large_text)
    (large / "mask.json").write_text(small_text)


def other_schema(small: Path, large: Path) -> None:
    edit(large / "run.json", schema="bosch.compare/1")


def not_json(small: Path, large: Path) -> None:
    (large / "run.json").write_text("settings")


def text_for_a_number(small: Path, large: Path) -> None:
    change_settings(large, heldout="5")


def list_in_a_list(small: Path, large: Path) -> None:
    change_settings(large, tasks=[["niah_single_1"]])


def no_window_setting(small: Path, large: Path) -> None:
    data = read_json(large / "run.json")
    del data["settings"]["window"]
    edit(large / "run.json", settings=data["settings"])


def gone_model(small: Path, large: Path) -> None:
    change_settings(large, model="./gone")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_file, "small holds no mask.json; expected a mask file or the directory of a finished search"),
        (other_model, "searched different models, or one model in two dtypes: another (000000000000) and tiny ("),
        (both_of_another_model, "is not the model that"),
        (no_origin, "large does not say which model its mask is for; expected a finished search"),
        (other_window, "the masks slide differently: the smaller with window 11"),
        (nested, "there is none to put back"),
        (exchanged, "got 7 of 24 KV heads sliding (ratio 0.292, window 8) and 4 of 24 KV heads sliding"),
        (other_schema, "run.json is not of a search (expected the schema 'bosch.run/1')"),
        (not_json, "run.json: not valid JSON"),
        (text_for_a_number, "run.json: its heldout must be an integer, got '5'"),
        (list_in_a_list, "run.json: its tasks must be a text, got ['niah_single_1']"),
        (no_window_setting, "run.json: its window must be an integer, got None"),
        (gone_model, "no such directory: ./gone"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_cannot_be_tested_is_refused_in_one_line(searches, tmp_path, spoil, message, capsys):
    spoil(*searches)
    assert main(command(searches, tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert error.startswith("bosch: error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("seeds", ["0", "-1"])
def test_at_least_one_seed_is_needed(searches, tmp_path, seeds, capsys):
    assert main(command(searches, tmp_path / "out", f"--seeds={seeds}")) == 2
    assert f"the number of seeds must be an integer of at least 1, got {seeds}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("flags", "trusted"), [([], False), (["--trust-remote-code"], True)])
def test_a_search_directory_cannot_consent_to_running_code(searches, tmp_path, monkeypatch, flags, trusted):
    """It may come from somebody else, with a checkpoint that brings code."""
    change_settings(searches[1], trust_remote_code=True)
    seen: list[bool] = []

    def refuse_to_load(*_, trust_remote_code: bool, **__):
        seen.append(trust_remote_code)
        raise BoschError("not now")

    monkeypatch.setattr("bosch.experiments.experiment.load_model", refuse_to_load)
    assert main(command(searches, tmp_path / "out", *flags)) == 2
    assert seen == [trusted]


@pytest.mark.slow
def test_two_searches_and_what_became_of_their_units(tmp_path, capsys):
    """The whole way. Both methods choose by the numbers of the layers alone, the same on every machine."""
    small, large = tmp_path / "random-layers", tmp_path / "intr"
    common = f"--model {TINY} --window 8 --tasks niah_single_1 --lengths 128 --examples 4 --heldout 4 --dtype float32"
    for run, ratio in ((small, 0.25), (large, 0.5)):
        assert main(f"search {common} --method {run.name} --ratio {ratio} --output {run}".split()) == 0
    departed = HeadMask.load(small / "mask.json").localized - HeadMask.load(large / "mask.json").localized
    assert departed
    capsys.readouterr()
    assert main(["analyze", "turnover", str(small), str(large)]) == 0
    assert f"| 0.25 → 0.5 | {len(departed)} of 6 | {len(departed) / 6:.0%} | 100% |" in squeezed(
        capsys.readouterr().out
    )
    assert main(command((small, large), tmp_path / "out")) == 0
    found = read_json(tmp_path / "out" / "replacement.json")
    assert {tuple(unit) for unit in found["departed"]} == departed
    reported = {row["name"]: row for row in read_json(large / "scores.json")["rows"]}
    assert found["rows"][0]["heldout"] == reported["intr"]["heldout"]

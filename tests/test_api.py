"""The front door: the whole job from Python, on a live model."""

import inspect
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

import bosch
from bosch import BoschError
from bosch.attention.interface import STATE
from bosch.calibration import ExampleSet, make_examples
from bosch.cli.app import main
from bosch.decoder import Decoder
from bosch.experiments.settings import SearchSettings
from bosch.selectors import METHODS
from drawing import drawn
from small_search import snapshot
from tiny_checkpoint import TINY

QUICK = {"window": 8, "lengths": [96, 128], "tasks": "niah_single_1", "examples": 4, "heldout": 4, "budget": 1}


@pytest.fixture(scope="module")
def tiny():
    return bosch.load_model(str(TINY), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def found(tiny):
    return bosch.search(*tiny, ratio=0.5, **QUICK)


def state_of(model) -> dict:
    """All that a search could leave behind."""
    return {
        "implementation": model.config._attn_implementation,
        "config": model.config.to_json_string(),
        "modes": [module.training for module in model.modules()],
        "hooks": [(len(m._forward_pre_hooks), len(m._forward_hooks), STATE in vars(m)) for m in model.modules()],
        "forwards": [vars(module).get("forward") for module in model.modules()],
        "grads": [(p.requires_grad, p.grad) for p in model.parameters()],
        "grad_mode": torch.is_grad_enabled(),
        "weights": [p.detach().double().sum().item() for p in model.parameters()],
    }


def test_importing_is_quick_and_imports_neither_torch_nor_transformers():
    code = (
        "import time, sys\nstart = time.perf_counter()\nimport bosch\nseconds = time.perf_counter() - start\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'matplotlib'} & set(sys.modules)), seconds < 0.3)\n"
        "print(all(hasattr(bosch, name) for name in dir(bosch)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[] True\nTrue\n"


def test_the_whole_job_in_six_lines(tiny, tmp_path, monkeypatch):
    """Search, deploy, generate, export; and nothing is on the disk but what was asked for."""
    monkeypatch.chdir(tmp_path)
    model, tokenizer = bosch.load_model(str(TINY), dtype="float32", device="cpu")
    found = bosch.search(model, tokenizer, ratio=0.5, **QUICK)
    assert snapshot(tmp_path) == {}
    inputs = tokenizer("One of the special magic numbers", return_tensors="pt")
    dense = Decoder(tiny[0]).forward(inputs["input_ids"], found.mask)[0, -1].argmax()
    hybrid = bosch.hybridize(model, found.mask)
    assert hybrid.generate(**inputs, max_new_tokens=1)[0, -1] == dense
    bosch.export(hybrid, tokenizer, "exported")
    again = AutoModelForCausalLM.from_pretrained("exported", trust_remote_code=False)
    assert torch.equal(again.generate(**inputs, max_new_tokens=8), hybrid.generate(**inputs, max_new_tokens=8))


def test_a_live_model_and_a_named_one_give_the_same_mask_and_scores(found, tmp_path):
    named = bosch.search(str(TINY), ratio=0.5, dtype="float32", output=tmp_path / "run", **QUICK)
    assert named.mask == found.mask
    assert [row.get("heldout") for row in named.rows] == [row.get("heldout") for row in found.rows]
    assert named.directory.mask.is_file()
    before = snapshot(tmp_path)
    again = bosch.search(str(TINY), ratio=0.5, dtype="float32", output=tmp_path / "run", **QUICK)
    assert again.mask == found.mask
    assert list(again.rows) == list(named.rows)
    assert snapshot(tmp_path) == before


@pytest.mark.slow
def test_several_ratios_come_back_from_a_finished_run(tmp_path):
    options = {**QUICK, "ratios": [0.25, 0.5], "dtype": "float32", "output": tmp_path}
    first, again = (bosch.search(str(TINY), **options) for _ in range(2))
    assert [mask.num_localized for mask in first.masks] == [6, 12]
    assert again.masks == first.masks
    assert again.mask is again.masks[-1]


def test_results_show_themselves(found):
    assert str(found).startswith("12 of 24 KV heads sliding (ratio 0.500, window 8)\n\n| mask ")
    assert found.table() in str(found)
    with drawn():
        shown = found._repr_html_()
    assert shown.count("<tr>") == 1 + 4
    assert 'src="data:image/png;base64,iVBORw0KGgo' in shown
    assert "KV head" in {axis.get_xlabel() for axis in found.plot().axes}


@pytest.mark.parametrize("training", [False, True])
def test_a_failing_search_leaves_the_model_as_it_was(training, monkeypatch):
    model, tokenizer = bosch.load_model(str(TINY), dtype="float32", device="cpu")
    model.train(training)
    model.model.layers[2].eval()
    for parameter in list(model.parameters())[::3]:
        parameter.requires_grad_(False)
    before = state_of(model)

    def fail(*_, **__):
        assert state_of(model) != before, "the model was in use"
        raise RuntimeError("in the middle of a layer")

    forward, calls = type(model.model.layers[3]).forward, []

    def fail_later(*arguments, **options):
        calls.append(0)
        return fail() if len(calls) > 60 else forward(*arguments, **options)

    monkeypatch.setattr(type(model.model.layers[3]), "forward", fail_later)
    with pytest.raises(RuntimeError, match="in the middle of a layer"):
        bosch.search(model, tokenizer, ratio=0.5, **QUICK)
    monkeypatch.undo()
    assert state_of(model) == before
    bosch.evaluate(model, tokenizer, lengths=96, examples=1, tasks="niah_single_1")
    assert state_of(model) == before


def test_every_option_of_the_command_line_is_a_keyword_with_the_same_default():
    parameters = inspect.signature(bosch.search).parameters
    for name, field in SearchSettings.__dataclass_fields__.items():
        default = inspect.Parameter.empty if name in ("model", "window") else field.default
        assert parameters[name].default is default or parameters[name].default == default
        assert name == "model" or f"    {name}: " in bosch.search.__doc__


@pytest.mark.parametrize(
    ("option", "argv", "sentence"),
    [
        ({"ratio": 1.5}, ["--ratio", "1.5"],
         "the ratio must be a number from 0 (all full) to 1 (all sliding), got 1.5"),
        ({"ratio": 0.5, "examples": 0}, ["--ratio", "0.5", "--examples", "0"],
         "examples must be an integer of at least 1"),
        ({"ratio": 0.5, "method": "bosh"}, ["--ratio", "0.5", "--method", "bosh"],
         "unknown method 'bosh'; did you mean"),
        ({"ratio": 0.5, "method_options": "stps=3"}, ["--ratio", "0.5", "--method-options", "stps=3"],
         "unknown parameter of progressive 'stps'; did you mean 'steps'?"),
        ({}, [], "expected one of --ratio, --ratios, --kv-budget and --max-drop, got none"),
    ],
)  # fmt: skip
def test_a_mistake_is_the_same_sentence_from_python_and_the_command_line(option, argv, sentence, tmp_path, capsys):
    with pytest.raises(BoschError) as error:
        bosch.search(str(TINY), window=8, output=tmp_path / "run", **option)
    command = ["search", "--model", str(TINY), "--window", "8", "--output", str(tmp_path / "run"), *argv]
    assert main(command) == 2
    assert capsys.readouterr().err == f"bosch: error: {error.value}\n"
    assert sentence in str(error.value)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"windw": 8}, "unknown option 'windw'; did you mean 'window'?"),
        ({"window": "8"}, "window must be an integer, got '8'"),
        ({"window": True}, "window must be an integer, got True"),
        ({"window": 8, "ratios": ["a"]}, "ratios must be a number, got 'a'"),
        ({"ratio": 0.5}, "the option window is missing: W, tokens that a sliding head sees"),
        ({"window": 8, "ratio": 0.5, "ray": "local"}, "Ray's workers load the model by its name"),
        ({"window": 8, "ratio": 0.5, "data": [("a", "b")]}, "1 pairs are too few; expected two or more"),
        ({"window": 8, "ratio": 0.5, "data": ["ab", ("a",)]}, "example 1 must be a prompt and an answer, both texts"),
    ],
)
def test_wrong_keywords_are_said_in_one_sentence(tiny, option, sentence):
    with pytest.raises(BoschError) as error:
        bosch.search(*tiny, **option)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_own_pairs_are_split_by_turns(tiny):
    """Every second pair is held out: the scores are those of the same pairs in a file."""
    model, tokenizer = tiny
    made = make_examples(tokenizer, tasks=["niah_single_1"], lengths=[96], num_examples=6, seed=3)
    pairs = [(example.prompt, example.answer) for example in made]
    found = bosch.search(model, tokenizer, ratio=0.5, window=8, data=pairs, budget=1)
    original = found.rows[0]
    assert (original["calibration"]["examples"], original["heldout"]["examples"]) == (3, 3)
    whole = bosch.evaluate(model, tokenizer, data=pairs)
    (row,) = whole.rows.rows
    expected = (original["calibration"]["nll"] + original["heldout"]["nll"]) / 2
    assert row.scores["nll"] == pytest.approx(expected, rel=1e-5)


def test_example_sets_are_taken_as_they_are(tiny):
    """Without a tokenizer: nothing is to be made."""
    model, tokenizer = tiny
    made = make_examples(tokenizer, tasks=["niah_single_1"], lengths=[96], num_examples=8, seed=3)
    halves = {"examples": ExampleSet(made.examples[:4]), "heldout": ExampleSet(made.examples[4:])}
    found = bosch.search(model, ratio=0.25, window=8, budget=1, **halves)
    assert found.facts["calibration"] == halves["examples"].fingerprint
    assert found.facts["heldout"]["fingerprint"] == halves["heldout"].fingerprint
    with pytest.raises(BoschError, match="only one of the example sets was given"):
        bosch.search(model, tokenizer, ratio=0.25, window=8, examples=halves["examples"])


def test_masks_are_evaluated_beside_the_live_model(tiny, found):
    """The live model under a mask scores as the deployed hybrid does."""
    options = {"lengths": 96, "examples": 3, "tasks": "niah_single_1"}
    rows = bosch.evaluate(*tiny, {"searched": found.mask}, **options).rows
    assert [row.target for row in rows.rows] == ["tiny", "searched"]
    assert rows.models["searched"]["ratio"] == 0.5
    model, tokenizer = bosch.load_model(str(TINY), dtype="float32", device="cpu")
    (deployed,) = bosch.evaluate(bosch.hybridize(model, found), tokenizer, **options).rows.rows
    assert deployed.scores["nll"] == pytest.approx(rows.rows[1].scores["nll"], rel=1e-4)


def test_methods_say_what_they_are(tiny):
    known = bosch.methods()
    assert list(known)[: len(METHODS)] == list(METHODS)
    assert all(method.summary.endswith(".") and "\n" not in method.summary for method in known.values())
    found = bosch.search(*tiny, ratio=0.25, method=known["progressive"](steps=6, pool=3), **QUICK)
    assert found.mask.num_localized == 6


def test_a_comparison_shows_every_method(tiny):
    compared = bosch.compare(
        *tiny, window=8, lengths=96, tasks="niah_single_1", examples=2, heldout=2, methods=["dcam", "random-layers"],
        ratios=[0.5], seeds=2,
    )  # fmt: skip
    assert set(compared.masks) == {("dcam", 0.5, None), ("random-layers", 0.5, 0), ("random-layers", 0.5, 1)}
    assert "| dcam " in str(compared)
    assert compared._repr_html_().count("<img") == 1

"""Faults that were found by use, each with the small input that showed it; others stand in the tests of their files."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GenerationConfig

import bosch
from bosch.calibration.tokens import as_chat
from bosch.cli import main
from bosch.common.files import read_json
from bosch.decoder import Decoder
from bosch.deploy.export import drop_unused_sampling
from bosch.deploy.hybridize import hybridize
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.runs import load_mask
from bosch.scoring.evaluator import Evaluator
from bosch.training.loss import distillation_loss
from families import make_model
from marks import slow_after
from small_search import snapshot
from tiny_checkpoint import TINY

EXAMPLES = "--window 8 --examples 2 --heldout 2 --tasks niah_single_1 --method intr --dtype float32"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished search."""
    path = tmp_path_factory.mktemp("finished") / "run"
    assert main(f"search --model {TINY} {EXAMPLES} --lengths 128 --ratio 0.5 --output {path}".split()) == 0
    return path


@pytest.fixture
def run(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def refuse(words: list[str], capsys) -> str:
    """The sentence that a command ends with."""
    capsys.readouterr()
    assert main(words) == 2
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("bosch: error: "))
    return error


# ----------------------------------------------------------------------------------------------------------------------
# Lost work
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        "--model ./typo --lengths 128",
        f"--model {TINY} --lengths 30",
        f"--model {TINY} --lengths 20000",
        f"--model {TINY} --lengths 128 --data nofile.jsonl",
        f"--model {TINY} --lengths 128 --device cuda:7",
        f"--model {TINY} --lengths 128 --chat",
    ],
)
@pytest.mark.parametrize("command", ["search --ratio 0.25", "compare --ratios 0.25 --methods intr"])
def test_a_mistake_with_overwrite_loses_nothing(command, wrong, run, capsys):
    before = snapshot(run)
    options = EXAMPLES.replace("--method intr ", "") if command.startswith("compare") else EXAMPLES
    refuse([*f"{command} {options} {wrong} --overwrite --output".split(), str(run)], capsys)
    assert {name: found for name, found in snapshot(run).items() if name in before} == before


@pytest.mark.parametrize("spelling", ["missing/../run", "run/.", "link", "run"])
def test_an_export_onto_its_own_run_is_refused_however_it_is_spelled(spelling, run, tmp_path, capsys):
    (tmp_path / "link").symlink_to(run)
    before = snapshot(run)
    refuse(["export", str(run), "--overwrite", "--output", f"{tmp_path}/{spelling}"], capsys)
    assert snapshot(run) == before
    assert {path.name for path in tmp_path.iterdir()} == {"run", "link"}


def test_an_export_into_a_link_to_an_empty_directory_goes_there(run, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert main(["export", str(run), "--output", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "config.json").is_file()
    assert not list(tmp_path.rglob(".bosch*"))


def test_an_export_into_the_directory_one_stands_in(run, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["export", str(run), "--output", "."]) == 0
    assert {"config.json", "mask.json"} <= set(os.listdir("."))


# ----------------------------------------------------------------------------------------------------------------------
# Silently wrong numbers
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", ["gpt_neox.layers.2.mlp.dense_4h_to_h.weight", "embed_out.weight"])
def test_a_checkpoint_that_lacks_weights_is_refused_wherever_it_is_loaded(lacking, finished, tmp_path, capsys):
    shutil.copytree(TINY, tmp_path / "torn")
    weights = load_file(TINY / "model.safetensors")
    name = next((name for name in weights if name == lacking), None) or next(
        name for name in weights if "mlp" in name and "weight" in name
    )
    save_file({key: value for key, value in weights.items() if key != name}, tmp_path / "torn" / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    with pytest.raises(BoschError, match="lacks weights"):
        load_model(str(tmp_path / "torn"))
    torn, mask = str(tmp_path / "torn"), str(finished / "mask.json")
    for words in (
        ["generate", torn, "--prompt", "a"],
        ["export", "--model", torn, "--mask", mask, "--output", str(tmp_path / "out")],
        ["eval", torn, "--tasks", "niah_single_1", "--lengths", "96", "--examples", "2", "--output",
         str(tmp_path / "eval")],
        [*f"search --model {torn} {EXAMPLES} --lengths 96 --ratio 0.5 --output".split(), str(tmp_path / "search")],
    ):  # fmt: skip
        assert name in refuse(words, capsys)
    assert not (tmp_path / "out").exists()


def test_a_gap_in_the_positions_is_no_border_of_documents():
    model = make_model("llama")
    tokens = torch.randint(1, 90, (1, 20), generator=torch.Generator().manual_seed(0))
    positions = torch.cat([torch.arange(10), torch.arange(100, 110)])[None]
    with torch.no_grad():
        stock = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
        decoder = Decoder(model)
        with decoder.hybrid(HeadMask.all_full(decoder.layout, 8)):
            live = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
        deployed = hybridize(model, HeadMask.all_full(decoder.layout, 8))
        after = deployed(input_ids=tokens, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(live, stock, rtol=0, atol=1e-5)
    torch.testing.assert_close(after, stock, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content }}<a>{% if enable_thinking is not false %}<think>\n{% endif %}",
        "{{ messages[0].content }}<a>{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
        "{{ messages[0].content }}<a><think>\n",
        "{{ messages[0].content }}<a><think>",
    ],
)
def test_no_answer_lands_inside_a_thought(template):
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.chat_template = template
    rendered = as_chat(tokenizer, "hello")
    assert rendered.startswith("hello<a>")
    assert rendered.count("<think>") == rendered.count("</think>")


@pytest.mark.parametrize("is_mixed", [False, True])
def test_the_teacher_computes_in_the_precision_of_the_student(is_mixed):
    teacher, student = make_model("llama"), make_model("llama", seed=1)
    seen: dict[str, set[torch.dtype]] = {}
    for name, model in (("teacher", teacher), ("student", student)):
        seen[name] = set()
        model.model.layers[0].mlp.down_proj.register_forward_hook(lambda *found, n=name: seen[n].add(found[2].dtype))
    tokens = torch.arange(1, 25)[None]
    with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
        distillation_loss(teacher, is_mixed)(student, {"input_ids": tokens, "labels": tokens})
    assert seen["teacher"] == seen["student"] == {torch.bfloat16 if is_mixed else torch.float32}


def test_the_states_that_a_batch_ends_in_are_not_kept():
    decoder = Decoder(make_model("llama"))
    with torch.no_grad(), decoder.hybrid(HeadMask.all_full(decoder.layout, 8)):
        _, calls = decoder.open(torch.arange(1, 20)[None])
    assert calls.output.last_hidden_state.numel() == 0


# ----------------------------------------------------------------------------------------------------------------------
# Refused too late, or not in words
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes", slow_after(1, [2_050_000, 1000, 20_000_000]))
def test_calibration_and_held_out_examples_share_one_memory_budget(memory_bytes, monkeypatch):
    evaluators = []

    def remembered(*arguments, **options):
        evaluators.append(Evaluator(*arguments, **options))
        return evaluators[-1]

    monkeypatch.setattr("bosch.experiments.experiment.Evaluator", remembered)
    options = {"window": 8, "lengths": [400], "examples": 8, "heldout": 8, "tasks": ["niah_single_1"]}
    bosch.search(str(TINY), ratio=0.5, method="intr", memory_gib=memory_bytes / 2**30, **options)
    batches = [batch for evaluator in evaluators for batch in evaluator._batches.values()]
    states = [one for batch in batches for one in batch.boundaries.values()]
    prefixes = [one for batch in batches for pair in batch.past if pair for one in vars(pair).values()]
    assert len(evaluators) == 2
    assert bool(states) is (memory_bytes > 1000)
    assert sum(one.untyped_storage().nbytes() for one in states + prefixes) <= memory_bytes


def test_workers_make_the_batches_of_the_driver(monkeypatch):
    """By themselves those with a GPU would make larger ones, and batch 3 would be other examples."""

    class Stop(Exception): ...

    def workers(address, load, evaluators, num_workers):
        assert [options["batch_tokens"] for options in evaluators.values()] == [123, 123]
        raise Stop

    monkeypatch.setattr("bosch.experiments.experiment.default_batch_tokens", lambda decoder: 123)
    monkeypatch.setattr("bosch.experiments.experiment.Workers", workers)
    with pytest.raises(Stop):
        bosch.search(str(TINY), ratio=0.5, window=8, lengths=[96], examples=2, heldout=2, ray="local")


def test_a_hybrid_is_no_model_to_search(run, tmp_path, capsys):
    assert main(["export", str(run), "--output", str(tmp_path / "export")]) == 0
    words = f"search --model {tmp_path}/export {EXAMPLES} --lengths 96 --ratio 0.5 --output {tmp_path}/again".split()
    assert "is a hybrid already; expected the original model" in refuse(words, capsys)
    assert not (tmp_path / "again").exists()


def test_a_tokenizer_with_more_tokens_than_the_model_has_embeddings(tmp_path, capsys):
    shutil.copytree(TINY, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_tokens(["magic", "hello"])
    tokenizer.save_pretrained(tmp_path / "model")
    size = load_model(str(TINY))[0].get_input_embeddings().weight.shape[0]
    words = ["generate", str(tmp_path / "model"), "--prompt", "hello"]
    assert f"the model has {size} embeddings" in refuse(words, capsys)


@pytest.mark.parametrize("provenance", [{"settings": {"method": "x"}}, {"settings": "x"}, [], "x", {"method": 3}, None])
def test_nothing_depends_on_the_shape_of_a_provenance(provenance, run, tmp_path):
    data = read_json(run / "mask.json")
    (run / "mask.json").write_text(json.dumps({**data, "provenance": provenance}))
    assert load_mask(run).mask.num_localized == 12
    mask, out = str(run / "mask.json"), str(tmp_path / "out")
    assert main(["export", "--model", str(TINY), "--mask", mask, "--output", out]) == 0
    assert main(["analyze", "units", mask, "--output", str(tmp_path / "analysis")]) == 0


def pairs(path: Path, num_words: int) -> Path:
    line = {"prompt": "the grass is green and " * num_words + "so the sky is", "answer": "blue"}
    path.write_text("".join(json.dumps({**line, "prompt": f"{n} {line['prompt']}"}) + "\n" for n in range(4)))
    return path


@pytest.mark.parametrize("name", ["own.jsonl", "own.JSONL"])
def test_pairs_have_lengths_of_their_own(name, tmp_path, capsys):
    path = pairs(tmp_path / name, 10)
    options = EXAMPLES.replace("--tasks niah_single_1", f"--data {path}").replace("--window 8", "--window 600")
    words = f"search --model {TINY} {options} --ratio 0.5 --output {tmp_path}/run".split()
    sentence = refuse(words, capsys)
    assert "600" in sentence
    assert "512" not in sentence
    assert "cannot tell this model" in refuse([word.replace("600", "8") for word in words], capsys)  # it was read


def test_json_that_is_not_in_lines_is_not_read_as_prose(tmp_path, capsys):
    path = pairs(tmp_path / "own.json", 10)
    options = EXAMPLES.replace("--tasks niah_single_1", f"--data {path}")
    words = f"search --model {TINY} {options} --ratio 0.5 --output {tmp_path}/run".split()
    assert "is neither JSON lines nor a text" in refuse(words, capsys)


def test_a_config_that_samples_nothing_says_nothing_of_sampling(capsys, tmp_path):
    model = make_model("llama")
    model.generation_config = GenerationConfig(do_sample=False, temperature=0.6, top_p=0.9, max_new_tokens=7)
    drop_unused_sampling(model)
    assert "temperature, top_p is left out" in capsys.readouterr().err
    assert model.generation_config.max_new_tokens == 7
    model.save_pretrained(tmp_path)


# ----------------------------------------------------------------------------------------------------------------------
# What no file and no number can be
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["eval {model} --lengths 96 --examples 2 --tasks niah_single_1",
                                   "search --model {model} {examples} --lengths 96 --ratio 0.5"])  # fmt: skip
def test_a_model_that_gives_nan_is_refused_in_words(words, tmp_path, capsys):
    model, output = tmp_path / "model", tmp_path / "out"
    shutil.copytree(TINY, model)
    weights = load_file(model / "model.safetensors")
    weights["model.layers.2.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    words = words.format(model=model, examples=EXAMPLES)
    assert "not finite" in refuse([*words.split(), "--output", str(output)], capsys)


@pytest.mark.parametrize("name", ["x" * 300, "a/" + "y" * 300])
@pytest.mark.parametrize("words", ["search --model {tiny} {examples} --lengths 96 --ratio 0.5 --output {name}",
                                   "search --model {name} {examples} --lengths 96 --ratio 0.5 --output out",
                                   "export {name} --output out", "export {run} --output {name}",
                                   "generate {name} --prompt a", "generate {run} --file {name}",
                                   "analyze units {name} {run} --output out",
                                   "train {name} --texts {name} --tokens 64 --output out"])  # fmt: skip
def test_a_name_that_is_too_long(words, name, finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = refuse(words.format(tiny=TINY, examples=EXAMPLES, run=finished, name=name).split(), capsys)
    assert name[2:80] in error
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", ["a\0b", "\ud800", b"bytes", 3])
def test_what_can_be_no_path(path):
    for call in (HeadMask.load, bosch.load_model):
        with pytest.raises(BoschError, match="expected the path of a file or a directory"):
            call(path)


def test_half_a_character_is_no_text(finished, world, tmp_path, capsys):
    (tmp_path / "own.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "\\ud800", "answer": "b"}\n')
    (tmp_path / "text.jsonl").write_text('{"text": "\\ud800"}\n')
    own = f"search --model {TINY} {EXAMPLES} --data {tmp_path / 'own.jsonl'} --ratio 0.5 --output {tmp_path / 'out'}"
    assert "line 2: not valid JSON" in refuse(own.replace("--tasks niah_single_1 ", "").split(), capsys)
    train = f"train {world['export']} --texts {tmp_path / 'text.jsonl'} --tokens 64 --output {tmp_path / 'out'}"
    assert "line 1: not valid JSON" in refuse(train.split(), capsys)
    assert "the prompt must be text" in refuse(["generate", str(finished), "--prompt", "\udcff"], capsys)
    model, tokenizer = load_model(str(TINY), dtype="float32")
    with pytest.raises(BoschError, match="example 2 must be a prompt and an answer, both texts"):
        bosch.search(model, tokenizer, ratio=0.5, window=8, data=[("a", "b"), ("\ud800", "b")])


def test_an_integer_beyond_64_bits_is_none(tmp_path, capsys):
    words = f"bench --model {TINY} --ratios 0.5 --window 8 --contexts {10**20} --output {tmp_path / 'out'}"
    assert "context must be an integer below 2^63" in refuse(words.split(), capsys)


def test_a_refusal_leaves_not_even_a_lock(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("a year of work")
    refuse(f"search --model {TINY} {EXAMPLES} --lengths 96 --ratio 0.5 --output {tmp_path}".split(), capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_analysis_is_the_same_after_an_upgrade(finished, tmp_path, monkeypatch):
    words = f"analyze overlap {finished} {finished / 'mask.json'} --output {tmp_path / 'out'}".split()
    assert main(words) == 0
    monkeypatch.setattr("bosch.analysis.overlap.__version__", "99.0")
    assert main(words) == 0
    assert read_json(tmp_path / "out" / "overlap.json")["bosch"] == "99.0"


@pytest.mark.parametrize(
    ("field", "value"), [("context", "32"), ("prefill_tokens_per_s", "fast"), ("to_original", {}), ("name", None)]
)
def test_a_row_of_a_benchmark_that_somebody_was_at(field, value, nothing_slow, tmp_path, capsys):
    words = f"bench --model {TINY} --ratios 0.5 --window 8 --contexts 32 --new-tokens 2 --output {tmp_path}".split()
    assert main(words) == 0
    rows = read_json(tmp_path / "rows.json")
    rows["rows"][1][field] = value
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "report.md").unlink()
    assert "rows.json" in refuse(words, capsys)


@pytest.mark.parametrize(("field", "value"), [("depth", None), ("depth", 1.5), ("distance", "far"), ("nll", [1])])
def test_an_example_of_an_evaluation_that_somebody_was_at(field, value, tmp_path, capsys):
    words = f"eval {TINY} --tasks niah_single_1 --lengths 96 --examples 2 --output {tmp_path}".split()
    assert main(words) == 0
    rows = read_json(tmp_path / "rows.json")
    rows["rows"][0]["examples"][1][field] = value
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "report.md").unlink()
    assert field in refuse(words, capsys)

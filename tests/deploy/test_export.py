"""Checkpoints that load everywhere: with the package, without it, as the original; and never by halves."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from dense_reference import is_greedy
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from bosch.cli import main
from bosch.common.files import read_json
from bosch.deploy import mask_of
from bosch.deploy.modeling_bosch import BoschMixin
from bosch.heads import HeadMask
from small_search import squeezed
from tiny_checkpoint import TINY

# Run before anything else in a process in which `bosch` must not be had, although it may be installed.
WITHOUT_BOSCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "bosch":
            raise ImportError("bosch cannot be imported here")
sys.meta_path.insert(0, Refuse())
"""


def python(code: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    """Run code in a process that knows neither this repository nor the package nor the network."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(cwd / "modules"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-c", WITHOUT_BOSCH + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, check=False, input="")


def ids(length: int = 37) -> torch.Tensor:
    return torch.randint(5, 3000, (1, length), generator=torch.Generator().manual_seed(3))


def original() -> Qwen3ForCausalLM:
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    model.generation_config.pad_token_id = 1
    return model


def test_the_exported_directory_loads_with_the_package_and_no_code_of_its_own_is_run(exported, searched, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(exported, path)
    (path / "modeling_bosch.py").write_text("raise RuntimeError('this file was run')\n")
    model = AutoModelForCausalLM.from_pretrained(path)
    assert isinstance(model, BoschMixin)
    assert isinstance(model, Qwen3ForCausalLM)
    mask = HeadMask.load(searched / "mask.json")
    assert mask_of(model.config) == mask
    assert HeadMask.load(path / "mask.json") == mask
    output = model.generate(ids(), max_new_tokens=12)
    assert is_greedy(original(), mask, output, 37, torch.ones_like(ids()))


LOAD = """
import json, os, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
path, again = sys.argv[1:]
try:
    AutoModelForCausalLM.from_pretrained(path)
except ValueError as error:
    refused = str(error)
model = AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True, attn_implementation="eager")
other = AutoModelForCausalLM.from_pretrained(again, trust_remote_code=True)  # two copies of the code in one process
tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=True)
ids = torch.tensor(json.load(open("ids.json")))
output = model.generate(ids, max_new_tokens=12, return_dict_in_generate=True)
text = pipeline("text-generation", model=model, tokenizer=tokenizer)("the special magic number", max_new_tokens=3)
model.train()
loss = model(ids, labels=ids).loss
loss.backward()
torch.optim.SGD(model.parameters(), lr=1e-3).step()
model.save_pretrained("tuned", max_shard_size="700KB")
tuned = AutoModelForCausalLM.from_pretrained("tuned", trust_remote_code=True)
print()
print(json.dumps({
    "refused": refused,
    "class": type(model).__name__,
    "tokens": output.sequences.tolist(),
    "other": other.generate(ids, max_new_tokens=12).tolist(),
    "bytes": output.cache.nbytes,
    "text": text[0]["generated_text"],
    "layers": tuned.config.bosch["layers"],
    "moved": max(float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), other.parameters())),
    "same": all(torch.equal(a, b) for a, b in zip(model.parameters(), tuned.parameters())),
    "tuned": sorted(os.listdir("tuned")),
    "imported": [name for name in sys.modules if name.partition(".")[0] == "bosch"],
}))
"""


def test_without_the_package_it_loads_from_its_one_file_and_keeps_its_mask_when_tuned(exported, searched, tmp_path):
    """Untrusted it is refused; trusted it generates the same, in a small cache, and saves whole checkpoints again."""
    shutil.copytree(exported, tmp_path / "again")
    (tmp_path / "ids.json").write_text(json.dumps(ids().tolist()))
    result = python(LOAD, exported, tmp_path / "again", cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert "trust_remote_code=True" in found["refused"]
    assert found["class"] == "BoschQwen3ForCausalLM"
    mask = HeadMask.load(searched / "mask.json")
    assert is_greedy(original(), mask, torch.tensor(found["tokens"]), 37, torch.ones_like(ids()))
    assert found["other"] == found["tokens"]
    num_tokens = 37 + 12 - 1  # the last one was generated and not fed back
    formula = 2 * 16 * 4 * (12 * num_tokens + 12 * (8 + 1))
    assert formula <= found["bytes"] <= 1.02 * formula
    assert found["text"].startswith("the special magic number")
    assert found["layers"] == read_json(exported / "config.json")["bosch"]["layers"]
    assert found["moved"] > 0
    assert found["same"]
    assert {"config.json", "generation_config.json", "modeling_bosch.py"} <= set(found["tuned"])
    assert found["imported"] == []


def test_the_weights_are_the_original_model_to_whoever_loads_its_stock_class(exported):
    """Full attention, with a cache and without; and the config says nothing that an engine could take for a window."""
    config = read_json(exported / "config.json")
    assert config["model_type"] == "bosch_qwen3"
    assert config["sliding_window"] is None
    assert set(config["layer_types"]) == {"full_attention"}
    assert config["use_sliding_window"] is False
    model = Qwen3ForCausalLM.from_pretrained(exported, config=Qwen3Config.from_pretrained(TINY), dtype=torch.float32)
    torch.testing.assert_close(model(ids()).logits, original()(ids()).logits, rtol=0, atol=1e-4)
    outputs = [model.generate(ids(), max_new_tokens=12, pad_token_id=1, use_cache=use) for use in (True, False)]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], original().generate(ids(), max_new_tokens=12))


def test_a_directory_holds_what_it_should_and_no_pickle(exported):
    names = {path.name for path in exported.iterdir()}
    shards = {name for name in names if name.endswith(".safetensors")}
    assert len(shards) > 1
    assert names - shards == {
        "README.md", "mask.json", "config.json", "generation_config.json", "modeling_bosch.py",
        "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert (exported / "modeling_bosch.py").read_text() == Path(bosch_file()).read_text()
    assert read_json(exported / "generation_config.json")["bos_token_id"] == 2
    text = "the special magic number"
    assert (
        AutoTokenizer.from_pretrained(exported)(text)["input_ids"]
        == AutoTokenizer.from_pretrained(TINY)(text)["input_ids"]
    )
    for shard in shards:
        with safe_open(exported / shard, "pt") as file:
            assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.float32}  # noqa: SIM118


def bosch_file() -> str:
    from bosch.deploy import modeling_bosch

    return modeling_bosch.__file__


def test_the_one_file_needs_torch_and_transformers_only():
    import ast

    tree = ast.parse(Path(bosch_file()).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in imported}
    assert roots - set(sys.stdlib_module_names) == {"torch", "transformers"}


def test_the_card_says_what_it_is_how_it_scored_and_where_it_comes_from(exported, searched):
    card = squeezed((exported / "README.md").read_text())
    rows = read_json(searched / "scores.json")["rows"]
    provenance = read_json(searched / "mask.json")["provenance"]
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    for text in (
        "12 of its 24 KV heads (ratio 0.500)",
        "chosen by `progressive` (objective `nll`)",
        "the last 8 tokens and the first 1 of the sequence",
        "holds 12 x T + 12 x min(T, 9)",
        "trust_remote_code=True",
        "as `Qwen3ForCausalLM`, with `model_type` `qwen3`",
        f"| {rows[0]['heldout']['accuracy']:.2f} | {rows[0]['heldout']['nll']:.3f} |",
        provenance["model_hash"],
        provenance["torch"],
        provenance["calibration"],
        "| `seed` | 0 |",
    ):
        assert text in card


def test_a_chat_template_and_sampling_defaults_are_kept(searched, tmp_path):
    source, output = tmp_path / "source", tmp_path / "output"
    shutil.copytree(TINY, source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(source)
    defaults = json.loads((source / "generation_config.json").read_text()) | {"do_sample": True, "temperature": 0.7}
    (source / "generation_config.json").write_text(json.dumps(defaults))
    mask = str(searched / "mask.json")
    assert main(["export", "--model", str(source), "--mask", mask, "--output", str(output)]) == 0
    assert AutoTokenizer.from_pretrained(output).chat_template == tokenizer.chat_template
    kept = read_json(output / "generation_config.json")
    assert (kept["do_sample"], kept["temperature"]) == (True, 0.7)


def test_the_dtype_is_that_of_the_checkpoint(searched, tmp_path):
    """The search ran in float32; the original of this one is float16, and so is what is made of it."""
    source, output = tmp_path / "source", tmp_path / "output"
    model = original().half()
    model.save_pretrained(source)
    AutoTokenizer.from_pretrained(TINY).save_pretrained(source)
    mask = str(searched / "mask.json")
    assert main(["export", "--model", str(source), "--mask", mask, "--output", str(output)]) == 0
    assert read_json(output / "config.json")["dtype"] == "float16"
    assert sum(path.stat().st_size for path in output.glob("*.safetensors")) < 1.1 * 2 * 515_392


# ---------------------------------------------------------------------------------------------------------------------
# Refusals, and exports that come to nothing
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "expected the directory of a search, or both --model and --mask"),
        (["--model", str(TINY)], "expected the directory of a search, or both --model and --mask"),
        (["nowhere"], "nowhere is not the directory of a search"),
        (["nowhere", "--model", "a", "--mask", "b"], "expected the directory of a search, or both"),
        (["--model", str(TINY), "--mask", "nowhere.json"], "nowhere.json: cannot read it"),
    ],
)
def test_a_mistaken_command_makes_nothing(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *options, "--output", "output"]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_size_of_shards_that_is_none_makes_nothing(searched, tmp_path, capsys):
    output = tmp_path / "output"
    assert main(["export", str(searched), "--max-shard-size", "big", "--output", str(output)]) == 2
    assert "max_shard_size must be a number and KB, MB or GB, got 'big'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_search_without_a_mask_yet_and_a_model_that_changed_since(searched, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(searched, run)
    source = tmp_path / "model"
    shutil.copytree(TINY, source)
    settings = json.loads((run / "run.json").read_text())
    settings["settings"]["model"] = str(source)
    (run / "run.json").write_text(json.dumps(settings))
    command = ["export", str(run), "--output", str(tmp_path / "output")]
    assert main(command) == 0  # elsewhere, but the same
    shutil.rmtree(tmp_path / "output")
    model = original()
    model.model.layers[3].self_attn.q_proj.weight.data[5, 7] += 1
    model.save_pretrained(source)
    assert main(command) == 2
    assert "is not the model that was searched" in capsys.readouterr().err
    (run / "mask.json").unlink()
    assert main(command) == 2
    assert "has no mask yet" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_a_mask_for_another_model_makes_nothing(searched, tmp_path, capsys):
    data = json.loads((searched / "mask.json").read_text())
    data["full"], data["units_per_layer"] = data["full"][:5], data["units_per_layer"][:5]
    mask = tmp_path / "mask.json"
    mask.write_text(json.dumps(data))
    assert main(["export", "--model", str(TINY), "--mask", str(mask), "--output", str(tmp_path / "output")]) == 2
    assert "made for a model with 5 layers x 4 KV heads, but this model has 6" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mask.json"]


def test_what_is_there_is_not_overwritten_unless_it_is_an_export_and_asked_for(searched, exported, tmp_path, capsys):
    output = tmp_path / "output"
    shutil.copytree(exported, output)
    (output / "of-another-export.safetensors").touch()
    (output / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    assert main(["export", str(searched), "--output", str(output)]) == 2
    assert "choose another directory or --overwrite" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert main(["export", str(searched), "--output", str(output), "--overwrite"]) == 0
    assert not (output / "of-another-export.safetensors").exists()
    assert (output / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "thoughts.txt").write_text("mine")
    for flags in ([], ["--overwrite"]):
        assert main(["export", str(searched), "--output", str(notes), *flags]) == 2
        assert "is not empty and no exported model" in capsys.readouterr().err
    assert main(["export", str(searched), "--output", str(notes / "thoughts.txt"), "--overwrite"]) == 2
    assert (notes / "thoughts.txt").read_text() == "mine"


@pytest.mark.parametrize("there_before", [False, True])
def test_a_full_disk_leaves_everything_as_it_was(there_before, searched, exported, tmp_path, monkeypatch, capsys):
    output = tmp_path / "output"
    if there_before:
        shutil.copytree(exported, output)
    before = {path.name: path.read_bytes() for path in output.iterdir()} if there_before else {}

    def full(model, directory, **_):
        (directory / "model.safetensors").write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BoschMixin, "save_pretrained", full)
    assert main(["export", str(searched), "--output", str(output), "--overwrite"]) == 2
    assert f"cannot write {output}: No space left on device" in capsys.readouterr().err
    assert ({path.name: path.read_bytes() for path in output.iterdir()} if there_before else {}) == before
    assert [path.name for path in tmp_path.iterdir()] == ["output"] * there_before


@pytest.mark.slow
def test_a_killed_export_leaves_nothing_that_loads(searched, tmp_path):
    """Killed at many moments: the output is not there, and what lies under a temporary name does not load."""
    output = tmp_path / "output"
    command = [sys.executable, "-c", "import sys; from bosch.cli import main; sys.exit(main(sys.argv[1:]))"]
    command += ["export", str(searched), "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = 0
    for attempt in range(5):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(path.is_dir() for path in tmp_path.glob(".bosch-partial-output-*")):
            time.sleep(0.001)
        time.sleep(0.004 * attempt)
        process.kill()
        process.wait()
        if output.exists():
            shutil.rmtree(output)
            continue
        killed += 1
        for remains in (path for path in tmp_path.iterdir() if path.is_dir()):
            with pytest.raises((OSError, ValueError)):
                AutoModelForCausalLM.from_pretrained(remains)
    assert killed >= 2
    assert main(["export", str(searched), "--output", str(output)]) == 0
    assert list(tmp_path.iterdir()) == [output]

"""Code that lies in files of others runs only if this very call says that they are trusted."""

import argparse
import contextlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import bosch
from bosch.bench.worker import work
from bosch.cli import main
from bosch.cli.app import _make_parser
from bosch.common.files import read_json
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.models.loading import load_model, random_model
from tiny_checkpoint import TINY

EXAMPLES = "--window 8 --lengths 96 --examples 2 --heldout 2 --tasks niah_single_1 --dtype float32"
WITHOUT_A_MODEL = {"methods", "models"}

CODE = """
from pathlib import Path
Path({mark!r}).write_text("this code ran")
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast
class Config(GPTNeoXConfig): pass
class Model(GPTNeoXForCausalLM): config_class = Config
class Words(PreTrainedTokenizerFast): pass
"""


class Places:
    """Directories that somebody prepared, and what their code would leave behind."""

    def __init__(self, folder: Path, kind: str, honest: Path) -> None:
        """With the results of somebody honest, changed."""
        shutil.copytree(honest, folder, dirs_exist_ok=True)
        self.folder, self.mark = folder, folder / "mark"
        self.model, self.run, self.runs = folder / "hostile", folder / "run", (folder / "run-a", folder / "run-b")
        shutil.copytree(TINY, self.model)
        for path in (self.model, folder / "export"):
            self.poison(path, kind)
        for path in (self.run, *self.runs):
            found = read_json(path / "run.json")
            found["settings"] |= {"model": str(self.model), "trust_remote_code": True}
            (path / "run.json").write_text(json.dumps(found))

    def poison(self, path: Path, kind: str) -> None:
        """Code beside the weights, named by the configs; or weights that are a pickle."""
        mark = str(self.mark)
        if kind == "pickle":
            for weights in path.glob("*.safetensors*"):
                weights.unlink()
            (path / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
            return
        (path / "evil.py").write_text(CODE.format(mark=mark))
        config, tokenizer = read_json(path / "config.json"), read_json(path / "tokenizer_config.json")
        config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
        tokenizer["auto_map"] = {"AutoTokenizer": ["evil.Words", "evil.Words"]}
        if kind == "unknown":
            config["model_type"] = "evil"
        (path / "config.json").write_text(json.dumps(config))
        (path / "tokenizer_config.json").write_text(json.dumps(tokenizer))


class Bomb:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.write_text, (Path(self.mark), "this code ran")


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    """A mask, a text, three searches and an export."""
    folder = tmp_path_factory.mktemp("honest")
    full = HeadMask.all_full(HeadLayout((4,) * 6), 8)
    full.localize([(0, 0)]).save(folder / "mask.json")
    (folder / "text.txt").write_text("The grass is green. " * 60)
    for name, ratio in (("run", 0.5), ("run-a", 0.25), ("run-b", 0.5)):
        searching = f"search --model {TINY} {EXAMPLES} --ratio {ratio} --method intr --output {folder / name}"
        assert main(searching.split()) == 0
    assert main(["export", str(folder / "run"), "--output", str(folder / "export")]) == 0
    return folder


@pytest.fixture(scope="module", params=["known", "unknown", "pickle"])
def places(request, honest, tmp_path_factory) -> Places:
    return Places(tmp_path_factory.mktemp(request.param), request.param, honest)


TRAIN = "--texts {f}/text.txt --tokens 64 --tokens-per-step 32 --sequence-length 32 --precision float32"
COMMANDS = (
    f"search --model {{f}}/hostile {EXAMPLES} --ratio 0.5 --method intr",
    f"compare --model {{f}}/hostile {EXAMPLES} --ratios 0.5 --methods intr",
    "eval {f}/hostile {f}/run --tasks niah_single_1 --lengths 96 --examples 2",
    "eval {f}/export --tasks niah_single_1 --lengths 96 --examples 2",
    "bench --model {f}/hostile --ratios 0.5 --window 8 --contexts 32 --new-tokens 2",
    "bench --model {f}/hostile --random-weights --ratios 0.5 --window 8 --contexts 32 --new-tokens 2",
    "analyze replacement {f}/run-a {f}/run-b",
    "generate {f}/run --prompt hello --max-new-tokens 2",
    "generate {f}/export --prompt hello --max-new-tokens 2",
    "generate {f}/hostile --prompt hello --max-new-tokens 2",
    "export {f}/run",
    "export --model {f}/hostile --mask {f}/mask.json",
    f"train {{f}}/export {TRAIN}",
)
"""Every command that loads a model, on directories whose files would like to be trusted."""


def test_every_command_is_listed():
    (commands,) = (action for action in _make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert {line.split()[0] for line in COMMANDS} | WITHOUT_A_MODEL == set(commands.choices)


@pytest.mark.parametrize("line", COMMANDS)
def test_no_command_runs_code_from_files(line, places, tmp_path, capsys):
    words = line.format(f=places.folder).split()
    status = main(words if words[0] == "generate" else [*words, "--output", str(tmp_path / "out")])
    assert status in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
    assert not places.mark.exists()


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """A benchmark's child would load torch for half a minute first."""
    monkeypatch.setattr("bosch.bench.run.run_job", work)


LOADERS: dict[str, Callable[[Places], object]] = {
    "load_model": lambda places: load_model(str(places.model)),
    "random_model": lambda places: random_model(str(places.model), num_positions=64),
    "search": lambda places: bosch.search(
        str(places.model), ratio=0.5, window=8, lengths=[96], examples=2, heldout=2, method="intr"
    ),
    "compare": lambda places: bosch.compare(
        str(places.model), ratios=[0.5], window=8, lengths=[96], examples=2, heldout=2, methods=["intr"]
    ),
    "evaluate": lambda places: bosch.evaluate(
        [str(places.model), str(places.run)], tasks=["niah_single_1"], lengths=[96], examples=2
    ),
    "export": lambda places: bosch.export(places.run, output=places.folder / "exported", overwrite=True),
}


@pytest.mark.parametrize("name", LOADERS)
def test_no_function_runs_code_from_files(name, places):
    with contextlib.suppress(BoschError):
        LOADERS[name](places)
    assert not places.mark.exists()


def test_the_flag_of_this_call_lets_it_run(honest, tmp_path):
    """So the code above is such that it would run; the model that it brings has other weights than the checkpoint."""
    places = Places(tmp_path, "unknown", honest)
    with pytest.raises(BoschError, match="lacks weights"):
        load_model(str(places.model), trust_remote_code=True)
    assert places.mark.read_text() == "this code ran"

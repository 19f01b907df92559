from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_search import OPTIONS, SIZES, make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from bosch.cli import main


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of 3 layers x 3 KV heads, which happens to predict the answers better with all of them full."""
    path = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(path)
    torch.manual_seed(1)
    Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **SIZES)).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def command(model_path: Path) -> Callable[..., list[str]]:
    """The arguments of a search into a directory, with options changed or added."""

    def make(output: Path, *flags: str, **changes: object) -> list[str]:
        options = {"model": model_path, **OPTIONS, "output": output, **changes}
        named = (("--" + name.replace("_", "-"), str(value)) for name, value in options.items())
        return ["search", *(word for pair in named for word in pair), *flags]

    return make


@pytest.fixture(scope="session")
def finished(command: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished search: to look at, not to change."""
    path = tmp_path_factory.mktemp("finished") / "run"
    assert main(command(path)) == 0
    return path

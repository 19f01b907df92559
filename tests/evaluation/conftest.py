from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from bosch.cli import main
from bosch.heads import HeadLayout, HeadMask
from tiny_checkpoint import TINY

LAYOUT = HeadLayout((4,) * 6)
MASK = HeadMask(LAYOUT, tuple((True, False, False, True) for _ in range(6)), window=7, sinks=2)


@pytest.fixture(scope="session")
def tiny() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The tiny trained model and its tokenizer: to ask, not to change."""
    return AutoModelForCausalLM.from_pretrained(TINY).eval(), AutoTokenizer.from_pretrained(TINY)


@pytest.fixture(scope="session")
def mask_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mask file."""
    path = tmp_path_factory.mktemp("mask") / "half.json"
    MASK.save(path, {"method": "by-hand"})
    return path


@pytest.fixture(scope="session")
def exported_half(mask_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported hybrid of that mask."""
    path = tmp_path_factory.mktemp("exported") / "hybrid"
    assert main(["export", "--model", str(TINY), "--mask", str(mask_path), "--output", str(path)]) == 0
    return path

import json
import shutil
from pathlib import Path

import pytest
import torch

from bosch.decoder import Decoder
from bosch.deploy.export import export
from bosch.deploy.recipe import Recipe
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.selectors import random_mask
from tiny_checkpoint import TINY


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny trained model, whose tokenizer has an end-of-text token here."""
    path = Path(shutil.copytree(TINY, tmp_path_factory.mktemp("model") / "tiny"))
    config = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(config | {"eos_token": "<pad>"}))
    return path


@pytest.fixture(scope="session")
def tiny_mask(tiny_path: Path) -> HeadMask:
    """Three quarters of its units slide; window 8, one sink."""
    decoder = Decoder(load_model(str(tiny_path), dtype="float32", device="cpu")[0])
    return random_mask(HeadMask.all_full(decoder.layout, window=8, sinks=1), 0.75, seed=1)


@pytest.fixture(scope="session")
def tiny_export(tiny_path: Path, tiny_mask: HeadMask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hybrid of both, exported. Not to be changed."""
    path = tmp_path_factory.mktemp("exported") / "hybrid"
    provenance = {"model": "someone/original", "settings": {"method": "by-hand", "objective": "nll"}}
    export(Recipe(str(tiny_path), tiny_mask, provenance), path)
    return path


@pytest.fixture(scope="session")
def token_ids() -> torch.Tensor:
    return torch.randint(5, 3000, (2, 53), generator=torch.Generator().manual_seed(3))

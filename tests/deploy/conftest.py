from pathlib import Path

import pytest

from bosch.cli import main
from tiny_checkpoint import TINY


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a short search of the tiny trained model: to look at, not to change."""
    path = tmp_path_factory.mktemp("searched") / "run"
    options = "--ratio 0.5 --window 8 --sinks 1 --tasks niah_single_1 --lengths 128 --examples 2 --heldout 2 --budget 1"
    assert main(["search", "--model", str(TINY), *options.split(), "--dtype", "float32", "--output", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def exported(searched: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `bosch export` makes of it, in a path with spaces and dots; in more than one shard."""
    path = tmp_path_factory.mktemp("exported") / "a hybrid v0.5"
    assert main(["export", str(searched), "--output", str(path), "--max-shard-size", "900KB"]) == 0
    return path

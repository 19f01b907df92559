from collections.abc import Callable
from pathlib import Path

import pytest

from bosch.cli import main
from small_search import OPTIONS


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

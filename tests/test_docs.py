"""Every Python block of the README and of docs/ runs, one after the other in the order of the page."""

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVERS = {"serving.md"}
"""Pages whose blocks start a server that does not end; `tests/serving` starts it, and ends it."""

PAGES = sorted(page for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if page.name not in SERVERS)
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.S | re.M)

TINY_PAGES = {"python.md", "analysis.md"}
"""Pages whose blocks need no real model."""

PRELUDE = {
    "analysis.md": """
from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.scoring.evaluator import Evaluator
from bosch.selectors import random_mask
model, tokenizer = load_model("tests/models/tiny")
examples = make_examples(tokenizer, tasks=["niah_single_1"], lengths=[96], num_examples=2, seed=0)
evaluator = Evaluator(Decoder(model), examples, window=8)
smaller, larger = random_mask(evaluator.full, 0.25, 0), random_mask(evaluator.full, 0.5, 1)
""",
}
"""What a page takes for granted."""


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def cases(real: bool) -> list:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if blocks(page) and (page.name not in TINY_PAGES) is real
    ]


def run(page: Path, folder: Path, monkeypatch) -> None:
    """The blocks of a page, with what its commands would have left."""
    shutil.copytree(ROOT / "tests" / "models", folder / "tests" / "models")
    shutil.copytree(ROOT / "docs" / "demo", folder / "runs" / "demo")
    monkeypatch.chdir(folder)
    names: dict = {}
    for code in [PRELUDE.get(page.name, ""), *blocks(page)]:
        exec(compile(code, str(page), "exec"), names)


def test_no_page_is_passed_over():
    assert len(cases(real=True)) + len(cases(real=False)) == sum(bool(blocks(page)) for page in PAGES) >= 5


@pytest.mark.parametrize("page", cases(real=False))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    run(page, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.parametrize("page", cases(real=True))
def test_python_blocks_run_on_the_real_model(page, tmp_path, monkeypatch):
    if page.name == "deploy.md":  # its first block loads what its command exports
        from bosch.cli import main

        mask = ROOT / "docs" / "demo" / "mask.json"
        output = tmp_path / "smollm2-hybrid"
        assert main(["export", "--model", "smollm2-135m", "--mask", str(mask), "--output", str(output)]) == 0
    run(page, tmp_path, monkeypatch)

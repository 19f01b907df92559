"""`bosch generate`: text to stdout, costs to stderr."""

import re

import pytest
import torch
from dense_reference import dense_hybrid

from bosch.cli import main
from bosch.heads import HeadMask
from bosch.models import load_model
from tiny_checkpoint import TINY

PROMPT = "the special magic number for happy cat is : 5 8 3 1 . " * 3


@pytest.fixture(scope="module")
def expected(searched):
    """The reference's continuation, as text."""
    model, tokenizer = load_model(str(TINY))  # in the dtype that suits the machine, as the command does it
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    with dense_hybrid(model, HeadMask.load(searched / "mask.json")), torch.no_grad():
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=9, use_cache=False)
    return ids.shape[1], tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True), model.dtype.itemsize


@pytest.mark.parametrize("kind", ["searched", "exported"])
def test_a_run_and_an_export_give_the_hybrids_text(kind, request, expected, capsys, tmp_path):
    path = request.getfixturevalue(kind)
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPT)
    capsys.readouterr()  # what the export said
    assert main(["generate", str(path), "--file", str(prompt), "--max-new-tokens", "9", "--compare-full"]) == 0
    out, err = capsys.readouterr()
    num_prompt, text, number_bytes = expected
    assert out.strip() == text.strip()
    lines = [line for line in err.splitlines() if " bytes of keys and values after " in line]
    assert [line.partition(":")[0] for line in lines] == ["hybrid", "full"]
    hybrid, full = (int(re.search(r"([\d,]+) bytes", line)[1].replace(",", "")) for line in lines)
    num_tokens = num_prompt + 9 - 1
    assert full == 2 * 16 * number_bytes * 24 * num_tokens
    formula = 2 * 16 * number_bytes * (12 * num_tokens + 12 * (8 + 1))
    assert formula <= hybrid <= 1.02 * formula
    assert all(f"after {num_prompt} + 9 tokens" in line and "tokens/s" in line for line in lines)


def test_any_model_generates_but_only_a_hybrid_compares(capsys):
    assert main(["generate", str(TINY), "--prompt", "the special magic number", "--max-new-tokens", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.strip()
    assert "model: " in err
    assert main(["generate", str(TINY), "--prompt", "the", "--compare-full"]) == 2
    assert "is no hybrid, so there is nothing to compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "a", "--max-new-tokens", "0"], "--max-new-tokens must be at least 1, got 0"),
        (["--file", "nowhere.txt"], "cannot read the prompt nowhere.txt"),
        ([], "one of the arguments --prompt --file is required"),
    ],
)
def test_mistakes(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["generate", str(TINY), *options]) == 2
    assert message in capsys.readouterr().err

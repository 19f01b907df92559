"""The table of families in docs/models.md, against what the installed transformers gives today."""

import importlib.util
import re
from pathlib import Path

import pytest

from small_models import model_types

ROOT = Path(__file__).parent.parent
LISTED = re.compile(r"^\| ([\w.-]+) \| \w+ \| \d+ of \d+ \|$", re.MULTILINE)


def script():
    spec = importlib.util.spec_from_file_location("list_models", ROOT / "scripts" / "list_models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def document() -> str:
    return (ROOT / "docs" / "models.md").read_text()


def test_the_document_lists_at_least_sixty_families_that_work_and_nothing_that_is_wrong():
    assert len(LISTED.findall(document())) >= 60
    assert "WRONG" not in document()


def test_the_table_says_what_came_out():
    listing = script()
    found = list(listing.outcomes(["llama", "mamba"]))
    assert [outcome.works for outcome in found] == [True, False]
    text = listing.table(found)
    assert LISTED.findall(text) == ["llama"]
    assert "1 of the 2 `model_type`s" in text
    assert "no layer of MambaForCausalLM called transformers' attention interface" in text


@pytest.mark.slow
def test_every_family_that_is_listed_works_and_none_is_wrong():
    found = list(script().outcomes(model_types()))
    assert [outcome for outcome in found if "WRONG" in outcome.text] == []
    assert {outcome.model_type for outcome in found if outcome.works} >= set(LISTED.findall(document()))

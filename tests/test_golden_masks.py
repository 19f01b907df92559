"""Every method still chooses the masks that it chose before the code was reshaped; with AVX2 and with AVX512."""

import json

import pytest

from bosch.selectors import METHODS
from golden_masks import FILE, golden_masks

GOLDEN = json.loads(FILE.read_text())


def test_there_are_golden_masks_of_every_method():
    assert {name.partition("@")[0] for name in GOLDEN} == set(METHODS)


@pytest.mark.slow
def test_every_method_chooses_its_golden_masks():
    assert golden_masks(list(METHODS)) == GOLDEN

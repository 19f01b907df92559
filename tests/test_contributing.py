"""The example in CONTRIBUTING is a method that works."""

import re
from pathlib import Path

from bosch.heads import HeadLayout, HeadMask
from bosch.selectors.method import Problem

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


class Scorer:
    layout = HeadLayout((3, 0, 2, 3))
    full = HeadMask.all_full(layout, 4)


class Objective:
    scorer = Scorer


def test_the_example_method_localizes_the_upper_units_in_twelve_lines():
    (code,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), flags=re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    names: dict = {}
    exec(code, names)
    mask = names["TopLayers"]().select(Problem(Objective), 0.5, budget=1, seed=0, on_stage=lambda *_: None).mask
    assert mask.localized == {(3, 0), (3, 1), (3, 2), (2, 1)}

"""Calibration and held-out data: prompts that hide a needle, and the answers that find it."""

from bosch.calibration.examples import Example, ExampleSet
from bosch.calibration.generator import make_examples
from bosch.calibration.items import Split
from bosch.calibration.own import own_examples, pair_examples
from bosch.calibration.tasks import TASKS, NeedleTask

__all__ = ["TASKS", "Example", "ExampleSet", "NeedleTask", "Split", "make_examples", "own_examples", "pair_examples"]

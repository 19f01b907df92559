"""Calibration and held-out data: prompts that hide a needle, and the answers that find it."""

from bosch.calibration.examples import Example, ExampleSet
from bosch.calibration.generator import make_examples
from bosch.calibration.items import Split
from bosch.calibration.own import own_examples
from bosch.calibration.tasks import TASKS, Task

__all__ = ["TASKS", "Example", "ExampleSet", "Split", "Task", "make_examples", "own_examples"]

"""How good a model is on the benchmarks of the paper (3.5, B.6), and on any other by way of lm-eval."""

from bosch.evaluation.results import Suite, SuiteResult, TaskResult
from bosch.evaluation.settings import EvalSettings
from bosch.evaluation.suites import LONGBENCH, NIAH

__all__ = ["LONGBENCH", "NIAH", "EvalSettings", "Suite", "SuiteResult", "TaskResult"]

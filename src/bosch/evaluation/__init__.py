"""How good a model is on the benchmarks of the paper (3.5, B.6): LongBench and GSM8K from local files, and tables."""

from bosch.evaluation.results import Suite, SuiteResult, TaskResult
from bosch.evaluation.suites import LONGBENCH

__all__ = ["LONGBENCH", "Suite", "SuiteResult", "TaskResult"]

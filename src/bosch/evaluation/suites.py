"""Which tasks the paper reports together (B.6)."""

from bosch.evaluation import gsm8k, longbench
from bosch.evaluation.results import Suite

LONGBENCH = Suite(
    "longbench",
    {
        **{
            category: tuple(task.name for task in longbench.TASKS.values() if task.category == category)
            for category in longbench.CATEGORIES
        },
        "Math Reasoning": (gsm8k.NAME,),
    },
)
"""The paper's LongBench: the six categories of the benchmark, and GSM8K as a seventh."""

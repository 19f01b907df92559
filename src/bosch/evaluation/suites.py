"""Which tasks the paper reports together (B.6)."""

from bosch.calibration.tasks import TASKS as NEEDLE_TASKS
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

NIAH = Suite(
    "niah",
    {
        category: tuple(name for name in NEEDLE_TASKS if name.startswith(f"niah_{category}_"))
        for category in ("single", "multikey")
    },
)
"""The paper's NIAH, at each length: three single and three multikey tasks of RULER, and the mean over the six."""

"""Each command that writes, at its smallest."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bosch.bench.worker import Job
from bosch.common.output import LOCK
from small_search import snapshot
from tiny_checkpoint import TINY

EXAMPLES = f"--window 8 --lengths 96 --examples 2 --heldout 2 --tasks niah_single_1 --dtype float32 --model {TINY}"
TRAIN = "--texts {texts} --tokens 64 --tokens-per-step {step} --sequence-length 32 --precision float32"


@dataclasses.dataclass(frozen=True)
class Case:
    """A command, its like with other settings, and how an unfinished directory of it differs from a finished one."""

    name: str
    command: str
    other: str
    unfinished: tuple[str, ...] = ()


CASES = (
    Case("search", f"search {EXAMPLES} --ratio 0.25 --method intr", f"search {EXAMPLES} --ratio 0.5 --method intr",
         ("report.md", "scores.json", "mask.json")),
    Case("compare", f"compare {EXAMPLES} --ratios 0.25 --methods intr",
         f"compare {EXAMPLES} --ratios 0.5 --methods intr",
         ("report.md", "rows.csv", "rows.json")),
    Case("eval", f"eval {TINY} --tasks niah_single_1 --lengths 96 --examples 2",
         f"eval {TINY} --tasks niah_single_1 --lengths 96 --examples 3", ("report.md",)),
    Case("bench", f"bench --model {TINY} --ratios 0.5 --window 8 --contexts 32 --new-tokens 2",
         f"bench --model {TINY} --ratios 0.25 --window 8 --contexts 32 --new-tokens 2", ("report.md", "bench.png")),
    Case("analyze", "analyze units {masks}/a.json {masks}/b.json", "analyze units {masks}/a.json {masks}/c.json",
         ("units.csv", "layers.csv")),
    Case("train", f"train {{export}} {TRAIN.replace('{step}', '32')}",
         f"train {{export}} {TRAIN.replace('{step}', '64')}",
         ("checkpoints",)),
)  # fmt: skip
"""Of commands whose results lie in an `OutputDirectory`; the braces are filled by the fixture `world`."""


def run(words: str, output: Path, *flags: str) -> int:
    from bosch.cli import main

    return main([*words.split(), "--output", str(output), *flags])


def content(path: Path) -> dict[str, bytes]:
    """What is in a directory, but for the lock, times, and what is drawn."""
    drawn = (".png", ".svg", LOCK)
    return {name: data for name, (_, data) in snapshot(path).items() if not name.endswith(drawn)}


def measure_at_once(job: Job) -> Iterator[dict[str, Any]]:
    """What a benchmark's child would say, of a model like the tiny one."""
    model = {"class": "ToyForCausalLM", "units_per_layer": [4] * 6, "parameters": 1000, "dtype": "float32"}
    yield {"model": {**model, "device": "cpu", "attention": "sdpa", "num_threads": 1}}
    for context in job.contexts:
        speeds = {"prefill_tokens_per_s": 1000.0, "decode_tokens_per_s": 100.0}
        yield {"measurement": {"context": context, **speeds, "peak_memory_bytes": 2**20, "cache_bytes": 2**10}}

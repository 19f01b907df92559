"""What reading the attention costs: time and peak memory of the pass that feeds the static methods against a plain one.

Bounds: the plain pass forms each attention score once; the reading forms it once more and goes over each about twenty
times (softmax, window sums, blocks, moments), so it is bound by memory bandwidth, not by products. Peak memory is taken
in a process of its own for each pass.

    python reading.py [--length 8192] [--repeats 2]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from bosch.calibration import Example, ExampleSet
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.probing import Subject, gather
from bosch.selectors import METHODS
from bosch.selectors.static.ranking import AttentionRanking

WINDOW = 64
READING = {
    name: method()
    for name, method in METHODS.items()
    if issubclass(method, AttentionRanking) and method.over == "examples"
}
"""The methods that share this pass."""


def make_subject(length: int) -> Subject:
    """SmolLM2-135M and one example of random tokens."""
    model, _ = load_model("smollm2-135m", dtype="float32", device="cpu")
    tokens = torch.randint(1000, 40_000, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    example = Example(tuple(tokens), length - 1, 0, "random", length, 0.0, "", "")
    return Subject(Decoder(model), ExampleSet((example,)), WINDOW)


def run(subject: Subject, kind: str) -> float:
    """Seconds of one pass over the example, without the head; "plain" is transformers' own."""
    tokens = list(subject.examples[0].input_ids)
    began = time.perf_counter()
    if kind == "plain":
        with torch.no_grad():
            subject.decoder.backbone(input_ids=torch.tensor([tokens]), use_cache=False)
    else:
        gather(subject, [tokens], [method.statistic(subject) for method in READING.values()])
    return time.perf_counter() - began


def peak_mib(kind: str, length: int) -> tuple[float, float]:
    """Peak memory of a process before and after one pass."""
    command = [sys.executable, __file__, "--only", kind, "--length", str(length)]
    return tuple(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", choices=["plain", "reading"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    subject = make_subject(options.length)
    if options.only:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        run(subject, options.only)
        print(json.dumps([before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    seconds: dict[str, list[float]] = {"plain": [], "reading": []}
    for _ in range(options.repeats):
        for kind, times in seconds.items():
            times.append(run(subject, kind))
    ratio = statistics.median(r / p for r, p in zip(seconds["reading"], seconds["plain"], strict=True))
    print(f"SmolLM2-135M, {options.length} tokens, float32, {torch.get_num_threads()} threads; {', '.join(READING)}")
    print(f"time: plain {min(seconds['plain']):.1f} s, reading {min(seconds['reading']):.1f} s, ratio {ratio:.2f}")
    del subject
    memory = {kind: peak_mib(kind, options.length) for kind in seconds}
    for kind, (before, after) in memory.items():
        print(f"peak memory, {kind}: {after:.0f} MiB, {after - before:.0f} above the model")
    print(f"  ratio of the peaks {memory['reading'][1] / memory['plain'][1]:.2f}")


if __name__ == "__main__":
    main()

"""What a second Ray worker saves: the same masks on one worker and on two, of one thread each.

    python benchmarks/workers.py [--model smollm2-135m] [--length 256] [--examples 8] [--masks 4] [--repeats 3]

Each repeat scores masks that were never scored before, on one worker and on two in turn, so that a busy machine slows
both alike; the speed-up is the median of the repeats' own ratios. A batch is one example, so that the bound is two.
"""

import argparse
import contextlib
import copy
import functools
import itertools
import statistics
from collections.abc import Iterator

from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.scoring.distributed import LOCAL, DistributedEvaluator, Workers
from bosch.selectors import random_mask
from deploy import interleaved, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--masks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    load = functools.partial(load_model, options.model, device="cpu")
    model, tokenizer = load()
    tasks = ["niah_single_1"]
    examples = make_examples(tokenizer, tasks=tasks, lengths=[options.length], num_examples=options.examples, seed=0)
    arguments = {"examples": examples, "window": options.window, "batch_tokens": options.length}
    names = ("one", "two")
    with contextlib.closing(Workers(LOCAL, lambda: load()[0], dict.fromkeys(names, arguments), 2)) as two:
        one = copy.copy(two)
        one.actors = two.actors[:1]
        decoder, runs = Decoder(model), []
        for name, workers in zip(names, (one, two), strict=True):
            evaluator = DistributedEvaluator(decoder, name=name, workers=workers, **arguments)
            evaluator.score(evaluator.full)
            runs.append(timed(functools.partial(score_next, evaluator, itertools.count(), options.masks)))
        alone, together = interleaved(runs, options.repeats)
    speed_up = statistics.median(a / b for a, b in zip(alone, together, strict=True))
    print(f"{options.model}, {options.examples} examples of {options.length} tokens, {options.masks} masks a repeat")
    print(
        f"one worker {statistics.median(alone):.2f} s, two {statistics.median(together):.2f} s: {speed_up:.2f}x of 2x"
    )


def score_next(evaluator: DistributedEvaluator, seeds: Iterator[int], count: int) -> None:
    """Score so many masks that were not scored before."""
    for seed in itertools.islice(seeds, count):
        evaluator.score(random_mask(evaluator.full, 0.5, seed))


if __name__ == "__main__":
    main()

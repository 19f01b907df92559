"""What the optimizers cost, and what they find.

    python benchmarks/optimizers.py [--quick]

First table: NOMAD's own time per evaluation, from its defaults to the parameters in use, one change after the other.
Wall time holds our loop, the pipe and the start of the child; CPU time is the child's alone, and depends less on what
else the machine does. Second table: the best loss after a budget, as a share of the way from the mean of random points
(1.0) down to the lowest loss known (0.0), on random quadratic losses: weights of unequal size, as heads have, and 2n
pairwise interactions.
"""

import argparse
import random
import resource
import statistics
import sys
from collections.abc import Callable, Generator
from unittest import mock

import bosch.optimizers as optimizers
from bosch.errors import BoschError
from bosch.optimizers import Bits, Optimizer, Outcome, QuotaSpace, minimize
from bosch.optimizers.nomad import PARAMETERS

# The limit only ends the silent circling of the rows that keep NOMAD's cache.
ALWAYS = ("BB_OUTPUT_TYPE OBJ", "DISPLAY_DEGREE 0", "MAX_EVAL 1000")
STEPS = {
    "NOMAD's defaults": ALWAYS,
    "no quadratic model search": (*ALWAYS, "QUAD_MODEL_SEARCH no"),
    "and poll ORTHO 2N": (*ALWAYS, "QUAD_MODEL_SEARCH no", "DIRECTION_TYPE ORTHO 2N"),
    "and queue by last success": (
        *ALWAYS,
        "QUAD_MODEL_SEARCH no",
        "DIRECTION_TYPE ORTHO 2N",
        "EVAL_QUEUE_SORT DIR_LAST_SUCCESS",
    ),
    "as used": PARAMETERS,
}


def space_of(num_bits: int, block: int) -> QuotaSpace:
    return QuotaSpace(((block, block // 2),) * (num_bits // block))


def quadratic(num_bits: int, seed: int) -> Callable[[Bits], float]:
    rng = random.Random(f"quadratic {num_bits} {seed}")
    weights = [rng.gauss(0, 1) ** 2 for _ in range(num_bits)]
    pairs = [(*rng.sample(range(num_bits), 2), rng.gauss(0, 0.7)) for _ in range(2 * num_bits)]
    scale = sum(weights)

    def loss(bits: Bits) -> float:
        alone = sum(weight for weight, bit in zip(weights, bits, strict=True) if bit)
        return (alone + sum(weight for i, j, weight in pairs if bits[i] and bits[j])) / scale

    return loss


def at_random(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    rng = random.Random(f"random {seed}")
    yield start
    while True:
        yield space.sample(rng)


def child_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def nomad_with(parameters: tuple[str, ...], space: QuotaSpace, seed: int, budget: int) -> tuple[Outcome, float]:
    """A run of NOMAD with these parameters, and the child's CPU time in seconds."""
    before = child_cpu_seconds()
    with mock.patch.object(sys.modules["bosch.optimizers.nomad"], "PARAMETERS", parameters):
        outcome = minimize(space, quadratic(space.dimension, seed), budget=budget, seed=seed, optimizer="nomad")
    return outcome, child_cpu_seconds() - before


def print_own_times(seeds: range, budget: int) -> None:
    print(f"NOMAD's own time per evaluation, ms wall (ms CPU), median of {len(seeds)} runs of {budget} evaluations")
    sizes = ((8, 4), (16, 8), (32, 8), (50, 10))
    print("| parameters | " + " | ".join(f"{size} bits" for size, _ in sizes) + " |\n|---|" + "---|" * len(sizes))
    for name, parameters in STEPS.items():
        cells = []
        for size, block in sizes:
            try:
                runs = [nomad_with(parameters, space_of(size, block), seed, budget) for seed in seeds]
            except BoschError:  # the default parameters end in a segmentation fault at times
                cells.append("died")
                continue
            wall = statistics.median(1000 * outcome.own_seconds / outcome.num_evaluations for outcome, _ in runs)
            cpu = statistics.median(1000 * seconds / outcome.num_evaluations for outcome, seconds in runs)
            cells.append(f"{wall:.1f} ({cpu:.1f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def print_quality(seeds: range, cases: list[tuple[int, int, int]]) -> None:
    known: dict[str, Optimizer] = {**optimizers.OPTIMIZERS, "random": at_random}
    names = [name for name in known if name != "brute-force"]
    print(f"\nLoss left, mean (worst) of {len(seeds)} losses; ms of own time per evaluation")
    print("| bits x blocks of | evaluations | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
    with mock.patch.dict(optimizers.OPTIMIZERS, known):
        for size, block, budget in cases:
            results = [quality(space_of(size, block), seed, budget, names) for seed in seeds]
            cells = []
            for name in names:
                gaps = [result[name][0] for result in results]
                own = statistics.median(result[name][1] for result in results)
                cells.append(f"{statistics.mean(gaps):.2f} ({max(gaps):.2f}); {own:.1f}")
            print(f"| {size} x {block} | {budget} | " + " | ".join(cells) + " |", flush=True)


def quality(space: QuotaSpace, seed: int, budget: int, names: list[str]) -> dict[str, tuple[float, float]]:
    """For each optimizer: the loss left, and milliseconds of own time per evaluation."""
    loss = quadratic(space.dimension, seed)
    rng = random.Random(f"mean {seed}")
    mean = statistics.mean(loss(space.sample(rng)) for _ in range(300))
    outcomes = {name: minimize(space, loss, budget=budget, seed=seed, optimizer=name) for name in names}
    long_runs = [minimize(space, loss, budget=3000, seed=1000 + i, optimizer="swap") for i in range(4)]
    lowest = min(outcome.loss for outcome in (*outcomes.values(), *long_runs))
    return {
        name: ((outcome.loss - lowest) / (mean - lowest), 1000 * outcome.own_seconds / outcome.num_evaluations)
        for name, outcome in outcomes.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one run each, of few evaluations")
    quick = parser.parse_args().quick
    minimize(space_of(8, 4), quadratic(8, 1), budget=3, seed=1, optimizer="one-plus-one")  # the import of nevergrad
    print_own_times(range(1, 2 if quick else 4), 30)
    cases = [(16, 8, 100), (32, 8, 100), (32, 8, 400), (48, 8, 64), (48, 8, 600), (48, 3, 64)]
    print_quality(range(1, 2 if quick else 6), cases[:2] if quick else cases)


if __name__ == "__main__":
    main()

"""What every optimizer must do, whatever it is: the promises of `minimize`, for each entry of OPTIMIZERS."""

import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bosch.errors import BoschError
from bosch.optimizers import COMPARING, OPTIMIZERS, QuotaSpace, minimize

SPACE = QuotaSpace(((7, 3), (5, 2)))
WEIGHTS = (0.9, -0.3, 0.4, -0.7, 0.2, 0.5, -0.1, 0.6, -0.8, 0.3, 0.1, -0.2)

pytestmark = pytest.mark.parametrize("name", OPTIMIZERS)


def separable(bits):
    return sum(weight for weight, bit in zip(WEIGHTS, bits, strict=True) if bit)


class Recorder:
    """A loss that keeps its calls."""

    def __init__(self, loss=separable):
        self.loss = loss
        self.calls = []

    def __call__(self, bits):
        self.calls.append(bits)
        return self.loss(bits)


def children():
    """Processes whose parent is this one."""
    stats = (path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists())
    return [stat for stat in stats if int(stat.rpartition(")")[2].split()[1]) == os.getpid()]


def test_budget_feasibility_and_memo(name):
    recorder = Recorder()
    outcome = minimize(SPACE, recorder, budget=60, seed=1, optimizer=name)
    assert outcome.num_evaluations == len(recorder.calls) == len(set(recorder.calls)) == 60
    assert outcome.stop_reason == "budget"
    assert outcome.optimizer == name
    for bits in recorder.calls:
        assert (len(bits), sum(bits[:7]), sum(bits[7:])) == (12, 3, 2)
        assert {type(bit) for bit in bits} == {bool}


def test_the_best_evaluated_point_is_returned_with_its_own_loss(name):
    recorder = Recorder()
    outcome = minimize(SPACE, recorder, budget=37, seed=2, optimizer=name)
    assert outcome.loss == min(map(separable, recorder.calls))
    assert outcome.best == min(recorder.calls, key=separable)
    assert 0 < outcome.own_seconds < 60


def test_of_equal_points_the_first_seen_is_returned(name):
    recorder = Recorder(lambda bits: 1.0)
    start = next(SPACE.enumerate())
    outcome = minimize(SPACE, recorder, budget=11, seed=3, start=start, optimizer=name)
    assert outcome.best == recorder.calls[0] == start


def test_time_in_the_loss_is_not_the_optimizers_own(name, monkeypatch):
    recorder, clock = Recorder(), time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 3600 * len(recorder.calls))
    outcome = minimize(SPACE, recorder, budget=5, seed=1, optimizer=name)
    assert len(recorder.calls) == 5
    assert 0 < outcome.own_seconds < 3600


def test_what_a_comparing_optimizer_is_told_of_worse_points_does_not_matter(name):
    """So a mask may be given up once it is known to be worse than the best."""
    if name not in COMPARING:
        pytest.skip(f"{name} looks at the losses themselves")
    rng = random.Random(5)
    pairs = {pair: rng.gauss(0, 0.7) for pair in itertools.combinations(range(12), 2)}

    def entangled(bits):
        return separable(bits) + sum(weight for (i, j), weight in pairs.items() if bits[i] and bits[j])

    def vague(bits):
        loss, lowest = entangled(bits), min(map(entangled, told.calls[:-1]), default=math.inf)
        return lowest + 1e-9 + (loss - lowest) * random.Random(str(bits)).random() if loss > lowest else loss

    known, told = Recorder(entangled), Recorder(vague)
    outcomes = [minimize(SPACE, recorder, budget=80, seed=2, optimizer=name) for recorder in (known, told)]
    assert told.calls == known.calls
    assert len({(outcome.best, outcome.loss) for outcome in outcomes}) == 1


def test_finds_the_optimum_of_a_small_separable_loss(name):
    space = QuotaSpace(((5, 2), (4, 1)))
    weights = (0.4, -0.3, 0.9, -0.7, 0.2, 0.5, -0.1, 0.6, 0.3)
    outcome = minimize(
        space,
        lambda bits: sum(w for w, bit in zip(weights, bits, strict=True) if bit),
        budget=40,
        seed=1,
        optimizer=name,
    )
    assert [i for i, bit in enumerate(outcome.best) if bit] == [1, 3, 6]
    assert outcome.loss == pytest.approx(-0.3 - 0.7 - 0.1)


def test_same_seed_same_calls_in_one_process_and_in_another(name):
    runs = []
    for _ in range(2):
        recorder = Recorder()
        minimize(SPACE, recorder, budget=40, seed=4, optimizer=name)
        runs.append(recorder.calls)
    code = f"""
import json
from bosch.optimizers import QuotaSpace, minimize
calls = []
def loss(bits):
    calls.append(bits)
    return sum(weight for weight, bit in zip({WEIGHTS}, bits) if bit)
minimize(QuotaSpace({SPACE.quotas}), loss, budget=40, seed=4, optimizer={name!r})
print(json.dumps(calls))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "17"}
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert runs[0] == runs[1] == [tuple(bits) for bits in json.loads(child.stdout)]


def test_another_seed_other_calls(name):
    start = next(SPACE.enumerate())
    runs = []
    for seed in (4, 5, 6, 7):
        recorder = Recorder()
        minimize(SPACE, recorder, budget=40, seed=seed, start=start, optimizer=name)
        runs.append(tuple(recorder.calls))
    assert len(set(runs)) == (1 if name == "brute-force" else 4)


def test_three_free_bits_stop_at_all_eight_points(name):
    space = QuotaSpace(((2, 1), (2, 1), (2, 1)))
    recorder = Recorder(lambda bits: sum(i * bit for i, bit in enumerate(bits)))
    outcome = minimize(space, recorder, budget=100, seed=1, optimizer=name)
    assert len(recorder.calls) <= 8
    assert outcome.loss == 0 + 2 + 4
    assert outcome.stop_reason in {"all seen", "circling"}


@pytest.mark.parametrize("quotas", [((4, 0),), ((4, 4),), ((3, 0), (0, 0), (2, 2))])
def test_a_pinned_space_is_one_evaluation(name, quotas):
    recorder = Recorder(lambda bits: 0.5)
    outcome = minimize(QuotaSpace(quotas), recorder, budget=100, seed=1, optimizer=name)
    assert outcome.best == tuple(bit for size, ones in quotas for bit in (ones > 0,) * size)
    assert (outcome.num_evaluations, outcome.loss, outcome.stop_reason) == (1, 0.5, "all seen")


def test_pinned_blocks_among_free_ones_stay(name):
    space = QuotaSpace(((2, 2), (5, 2), (3, 0)))
    recorder = Recorder(lambda bits: bits[2] + bits[3] + 0.5 * bits[4])
    outcome = minimize(space, recorder, budget=9, seed=1, optimizer=name)
    assert all(bits[:2] == (True, True) and bits[7:] == (False,) * 3 for bits in recorder.calls)
    assert sum(outcome.best) == 4


def test_the_start_is_evaluated_first(name):
    start = (True,) * 3 + (False,) * 7 + (True,) * 2
    recorder = Recorder()
    minimize(SPACE, recorder, budget=5, seed=1, start=start, optimizer=name)
    assert recorder.calls[0] == start


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ((True,) * 5, "start has 5 bits, but the space has 12"),
        ((True,) * 13, "start has 13 bits"),
        ((True,) * 12, r"start has \[7, 5\] bits True per block; expected \[3, 2\]"),
        ((2,) + (False,) * 11, "bit 0 of the start is 2"),
        ((1.0,) * 12, "bit 0 of the start is 1.0"),
    ],
)
def test_a_start_off_the_space_is_refused_before_any_call(name, start, message):
    recorder = Recorder()
    with pytest.raises(BoschError, match=message):
        minimize(SPACE, recorder, budget=5, seed=1, start=start, optimizer=name)
    assert recorder.calls == []


@pytest.mark.parametrize("budget", [0, -1, 2.5, True, "10", None])
def test_a_budget_below_one_is_refused(name, budget):
    with pytest.raises(BoschError, match="budget must be an integer of at least 1"):
        minimize(SPACE, separable, budget=budget, seed=1, optimizer=name)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_a_failed_point(name, bad):
    """The very first evaluation, the start, fails as well."""
    recorder = Recorder(lambda bits: bad if len(recorder.calls) % 3 == 1 else separable(bits))
    outcome = minimize(SPACE, recorder, budget=40, seed=1, optimizer=name)
    assert len(recorder.calls) == len(set(recorder.calls)) == 40
    assert outcome.loss == min(separable(bits) for i, bits in enumerate(recorder.calls) if i % 3)
    assert outcome.loss == separable(outcome.best)


def test_no_finite_loss_at_all_is_an_error(name):
    with pytest.raises(BoschError, match="none of 7 evaluations gave a finite loss"):
        minimize(SPACE, lambda bits: math.nan, budget=7, seed=1, optimizer=name)


@pytest.mark.parametrize("error", [ZeroDivisionError("broken"), KeyboardInterrupt(), BoschError("b <= a")])
def test_an_exception_of_the_loss_surfaces_at_once_and_leaves_no_process(name, error):
    def fail(bits):
        if len(recorder.calls) == 2:
            raise error
        return separable(bits)

    recorder = Recorder(fail)
    begin = time.monotonic()
    with pytest.raises(type(error)) as raised:
        minimize(SPACE, recorder, budget=60, seed=1, optimizer=name)
    assert raised.value is error
    assert time.monotonic() - begin < 10
    assert len(recorder.calls) == 2
    assert children() == []

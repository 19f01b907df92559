"""MADS, as implemented by NOMAD 4, in child processes, brought back to the quotas.

Audet and Dennis (2006), Mesh adaptive direct search; Audet et al. (2022), Algorithm 1027: NOMAD version 4.

On binary variables NOMAD's poll flips one bit of its best point, and hardly ever more. From a point that meets its
quotas no flip does. With a penalty on infeasible points, the paper's Eq. 3, it would stay where it starts; so each
flip is repaired by flips at random, which makes it a swap, and NOMAD is told the loss of that. As it takes the flip,
not the swap, for its new best point, it begins again from the swap. The mesh of a binary variable has one size, so
nothing learned is lost.

The library is not to be trusted with our process: equal bounds or a start of the wrong length end it with a
segmentation fault, an exception of the callback (Ctrl-C too) is printed and swallowed, and a second run in one process
does not follow its seed. So each run gets a fresh child, which is killed as soon as the run is over for any reason.
"""

import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from bosch.errors import BoschError
from bosch.optimizers.space import Bits, QuotaSpace

WORKER = Path(__file__).with_name("nomad_worker.py")

PARAMETERS = (
    "BB_OUTPUT_TYPE OBJ",
    "DISPLAY_DEGREE 0",
    # Its quadratic models, in the search, in the poll's last direction and in the order of the queue, take up to a
    # second each on 16 variables: benchmarks/optimizers.py.
    "QUAD_MODEL_SEARCH no",
    "DIRECTION_TYPE ORTHO 2N",
    "EVAL_QUEUE_SORT DIR_LAST_SUCCESS",
    # With its own cache it circles over known points without a word to us, up to a million of them.
    "EVAL_USE_CACHE no",
)

NUM_SEEDS = 100_000
"""NOMAD begins by drawing as many random numbers as its seed says: 20 s for a seed of 1e9, 10 ms for one of 1e5."""


NUM_REPAIRS = 20
"""Repairs of a flip drawn in search of a new point; where there is none, the flip counts as no change of the best."""


def nomad(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    """Propose the start, then NOMAD's flips of the best point so far, repaired.

    Raises:
        BoschError: a child process died; its status is named.
    """
    best, lowest = start, (yield start)
    known = {start}
    for attempt in itertools.count():
        rng = random.Random(f"nomad {seed} {attempt}")
        # Its poll goes from the first variable to the last; beginning again, it would never come to the later ones.
        free = rng.sample(space.free, len(space.free))
        with _worker(_task([best[i] for i in free], rng)) as worker:
            while point := _receive(worker):
                flipped = _place(point, free, best)
                repairs = (space.repair(flipped, rng) for _ in range(NUM_REPAIRS))
                bits = next((repair for repair in repairs if repair not in known), best)
                known.add(bits)
                loss = yield bits
                if loss < lowest:
                    best, lowest = bits, loss
                    break
                _send(worker, loss)


def _place(point: str, free: Sequence[int], bits: Bits) -> list[bool]:
    placed = list(bits)
    for i, digit in zip(free, point, strict=True):
        placed[i] = digit == "1"
    return placed


def _task(start: list[bool], rng: random.Random) -> dict[str, list[int] | list[str]]:
    types = " ".join("B" for _ in start)
    # Neighbouring small seeds give NOMAD the same run at times, so ours is not passed on as it is.
    own = [f"DIMENSION {len(start)}", f"BB_INPUT_TYPE ( {types} )", f"SEED {rng.randrange(1, NUM_SEEDS)}"]
    return {"start": [int(bit) for bit in start], "parameters": [*own, *PARAMETERS]}


@contextlib.contextmanager
def _worker(task: dict[str, list[int] | list[str]]) -> Iterator[subprocess.Popen[bytes]]:
    # A session of its own: Ctrl-C in the terminal reaches us alone, and we end the child. Unbuffered: after its death
    # there is nothing left to flush, which would fail a second time.
    process = subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    with process:
        try:
            _send(process, task)
            yield process
        finally:
            process.kill()


def _send(worker: subprocess.Popen[bytes], message: object) -> None:
    assert worker.stdin is not None
    # A dead worker is noticed, and reported with its status, when its next line is missing.
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(message).encode() + b"\n")


def _receive(worker: subprocess.Popen[bytes]) -> str:
    """The worker's next point; empty at its regular end."""
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        code = worker.wait()
        status = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        raise BoschError(
            f"the NOMAD process died with {status}; another optimizer can be chosen, such as "
            "--method-options optimizer=swap"
        )
    return line.decode().strip()

"""MADS, as implemented by NOMAD 4, in a child process of its own.

Audet and Dennis (2006), Mesh adaptive direct search; Audet et al. (2022), Algorithm 1027: NOMAD version 4.

The library is not to be trusted with our process: equal bounds or a start of the wrong length end it with a
segmentation fault, an exception of the callback (Ctrl-C too) is printed and swallowed, and a second run in one process
does not follow its seed. So each run gets a fresh child, which is killed as soon as the run is over for any reason.
"""

import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO

from bosch.errors import BoschError
from bosch.optimizers.space import Bits, QuotaSpace

WORKER = Path(__file__).with_name("nomad_worker.py")

PARAMETERS = (
    "BB_OUTPUT_TYPE OBJ",
    "DISPLAY_DEGREE 0",
    "QUAD_MODEL_SEARCH no",
    "EVAL_QUEUE_SORT DIR_LAST_SUCCESS",
    "DIRECTION_TYPE ORTHO 2N",
)

NUM_SEEDS = 100_000
"""NOMAD begins by drawing as many random numbers as its seed says: 20 s for a seed of 1e9, 10 ms for one of 1e5."""


def nomad(space: QuotaSpace, *, budget: int, seed: int, start: Bits) -> Generator[Bits, float, None]:
    """Propose what NOMAD proposes, over the bits that are not pinned.

    Raises:
        BoschError: the child process died; its status is named.
    """
    free = space.free
    if not free:
        yield start
        return
    with _start_worker() as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            _send(worker.stdin, _task([start[i] for i in free], seed))
            while line := worker.stdout.readline().strip():
                bits = list(start)
                for i, digit in zip(free, line, strict=True):
                    bits[i] = digit == "1"
                loss = yield tuple(bits)
                _send(worker.stdin, loss if math.isfinite(loss) else None)
            if worker.wait():
                raise BoschError(f"the NOMAD process died with {_status(worker.returncode)}")
        finally:
            worker.kill()


def _task(start: list[bool], seed: int) -> dict[str, list[int] | list[str]]:
    # NOMAD's generator gives neighbouring small seeds the same run at times; spread them.
    spread = random.Random(f"nomad {seed}").randrange(1, NUM_SEEDS)
    types = " ".join("B" for _ in start)
    own = [f"DIMENSION {len(start)}", f"BB_INPUT_TYPE ( {types} )", f"SEED {spread}"]
    return {"start": [int(bit) for bit in start], "parameters": [*own, *PARAMETERS]}


def _start_worker() -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C in the terminal reaches us alone, and we end the child.
    return subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _send(stream: IO[str], message: object) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _status(returncode: int) -> str:
    return signal.Signals(-returncode).name if returncode < 0 else f"exit status {returncode}"

"""A job in a child process of its own, and what its death means."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from typing import IO, Any

from bosch.bench.worker import Job
from bosch.errors import BoschError

COMMAND = [sys.executable, "-P", "-m", "bosch.bench.worker"]

OUT_OF_MEMORY = ("out of memory", "allocate memory", "alloc_failed", "bad_alloc", "memoryerror")
"""How torch, CUDA, cuBLAS, the C++ runtime, the operating system and Python say that there is no memory left."""
LAST_WORDS = 2000
"""Characters at the end of a child's standard error."""


class OutOfMemoryError(Exception):
    """A child had not enough memory, or was killed, which is how Linux says the same."""


def run_job(job: Job) -> Generator[dict[str, Any], None, None]:
    """The replies of a child as they come, as in `worker`; closing the iterator kills the child.

    Raises:
        OutOfMemoryError: the child ran out of memory.
        BoschError: the child said what the user can mend, or it ended before a reply that is asked for; its last words
            are given.
    """
    with tempfile.TemporaryFile() as errors, _started(job, errors) as process:
        assert process.stdout
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of it
            reply = json.loads(line)
            if "error" in reply:
                raise BoschError(reply["error"])
            yield reply
        code = process.wait()
        errors.seek(0)
        raise _cause(code, errors.read().decode(errors="replace")[-LAST_WORDS:])


@contextlib.contextmanager
def _started(job: Job, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    with process:
        try:
            assert process.stdin
            # A child that is dead already is noticed by its exit status.
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(job.to_text().encode())
            yield process
        finally:
            process.kill()


def _cause(code: int, last_words: str) -> Exception:
    if code == -signal.SIGKILL or any(words in last_words.lower() for words in OUT_OF_MEMORY):
        return OutOfMemoryError()
    status = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    lines = [line.strip() for line in last_words.splitlines() if line.strip()]
    said = f": {lines[-1]}" if lines else ""
    return BoschError(f"the process that measures the model died with {status}{said}")

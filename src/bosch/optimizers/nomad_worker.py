"""The child process in which NOMAD runs: reads one task, then asks for the loss of one point after the other.

Lines on standard input: first a JSON object with `start` (list of 0 and 1) and `parameters` (list of NOMAD's text
parameters); then for each point its loss. Lines on standard output: for each point a string of 0 and 1; at the end an
empty line.

A script of its own, which imports nothing of this package: it starts in a fraction of the time, and a crash or a print
of the native library stays here.
"""

import json
import os
import sys
from typing import Any

import PyNomad


def main() -> None:
    """Run one task."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    task = json.loads(sys.stdin.readline())
    dimension = len(task["start"])

    def evaluate(point: Any) -> bool:
        try:
            replies.write("".join("1" if point.get_coord(i) > 0.5 else "0" for i in range(dimension)) + "\n")
            replies.flush()
            loss = sys.stdin.readline()
        except BrokenPipeError:
            loss = ""
        if not loss:
            # The parent is gone. An exception would be swallowed by the library, which would then go on.
            os._exit(1)
        point.setBBO(loss.strip().encode())
        return True

    PyNomad.optimize(evaluate, task["start"], [0.0] * dimension, [1.0] * dimension, task["parameters"])
    replies.write("\n")
    replies.flush()


if __name__ == "__main__":
    main()

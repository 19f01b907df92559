"""A search that is killed again and again ends as if nothing had happened, and evaluates nothing twice."""

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from bosch.cli import main
from bosch.common.files import read_json
from bosch.runs import RunDirectory

pytestmark = pytest.mark.slow

NUM_KILLS = 10
WIDER = {"lengths": 300, "examples": 8, "heldout": 8}


def start(argv: list[str]) -> int:
    """Begin a search in a child process and return its id. A fork, because a new interpreter needs seconds."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os._exit(main(argv))
    return child


def is_running(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def evaluated(run: RunDirectory) -> list[list[str]]:
    """The masks in each of the journals, whole lines only."""
    journals = [path.read_text() if path.is_file() else "" for path in (run.journal, run.heldout_journal)]
    return [re.findall(r'"mask":"([01.]+)".*\n', journal) for journal in journals]


def kill_somewhere(argv: list[str], run: RunDirectory, rng: random.Random, total: int) -> bool:
    """Go on with a search and kill it a while later, at any instruction; whether it still ran then."""
    goal = min(total, sum(map(len, evaluated(run))) + rng.randrange(total // 4))
    child = start(argv)
    while sum(map(len, evaluated(run))) < goal and is_running(child):
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.03))  # within an evaluation or two of its goal, however quick the machine
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("method", ["progressive", "bosch"])
def test_ten_kills_change_nothing_and_repeat_no_evaluation(command, tmp_path, method):
    undisturbed = RunDirectory(tmp_path / "undisturbed")
    assert os.waitpid(start(command(undisturbed.path, method=method, **WIDER)), 0)[1] == 0
    total = sum(map(len, evaluated(undisturbed)))
    rng = random.Random(method)
    struck: list[int] = []
    for attempt in range(NUM_KILLS):
        run = RunDirectory(tmp_path / f"run {attempt}")
        argv = command(run.path, method=method, **WIDER)
        while len(struck) < NUM_KILLS and kill_somewhere(argv, run, rng, total):
            struck.append(sum(map(len, evaluated(run))))
            for path in run.path.rglob("[!.]*.json"):
                read_json(path)
        assert os.waitpid(start(argv), 0)[1] == 0
        assert_same_result(run, undisturbed)
        if len(struck) == NUM_KILLS:
            break
    assert len(struck) == NUM_KILLS
    assert len(set(struck)) > NUM_KILLS // 2


def assert_same_result(run: RunDirectory, undisturbed: RunDirectory) -> None:
    assert evaluated(run) == evaluated(undisturbed)
    assert all(len(set(masks)) == len(masks) for masks in evaluated(run))
    assert read_json(run.mask)["full"] == read_json(undisturbed.mask)["full"]
    assert read_json(run.scores)["rows"] == read_json(undisturbed.scores)["rows"]
    assert names(run.path) == names(undisturbed.path)


def names(path: Path) -> set[str]:
    """Files that are there to be seen; a kill may leave a hidden half of one."""
    return {str(file.relative_to(path)) for file in path.rglob("[!.]*")}

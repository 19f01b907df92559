"""NOMAD's child process: its parameters, its death, its silence; and which optimizer is chosen."""

import inspect
import os
import signal
import subprocess
import sys

import pytest

from bosch.errors import BoschError
from bosch.optimizers import QuotaSpace, choose_optimizer, minimize
from bosch.optimizers.nomad import PARAMETERS, WORKER

SPACE = QuotaSpace(((11, 5),))


def child_pid():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        return int(file.read().split()[-1])


def test_every_parameter_is_one_that_nomad_knows():
    """It only prints a word about an unknown parameter, and goes on with its default."""
    code = "import PyNomad; PyNomad.help('all')"
    known = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for parameter in PARAMETERS:
        assert f"\n{parameter.split()[0]} {{" in known


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_death_of_the_child_is_an_error_that_names_the_signal(number):
    calls = []

    def loss(bits):
        calls.append(bits)
        if len(calls) == 4:
            os.kill(child_pid(), number)
        return float(bits[0])

    with pytest.raises(BoschError, match=f"died with {number.name}"):
        minimize(SPACE, loss, budget=60, seed=1, optimizer="nomad")
    assert len(calls) <= 5


def test_a_child_that_cannot_run_is_an_error_that_names_the_status(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(sys.modules["bosch.optimizers.nomad"], "WORKER", worker)
    with pytest.raises(BoschError, match="died with exit status 3"):
        minimize(SPACE, lambda bits: 0.0, budget=60, seed=1, optimizer="nomad")


def test_nomads_own_prints_reach_neither_our_output_nor_our_errors(capfd):
    minimize(SPACE, lambda bits: float(bits[0]), budget=20, seed=1, optimizer="nomad")
    assert capfd.readouterr() == ("", "")


def test_the_child_ends_when_its_parent_is_gone():
    task = b'{"start": [1, 0, 1], "parameters": ["DIMENSION 3", "BB_INPUT_TYPE ( B B B )", "BB_OUTPUT_TYPE OBJ"]}\n'
    child = subprocess.run([sys.executable, str(WORKER)], input=task, capture_output=True, timeout=30)
    assert child.stdout.splitlines() == [b"101"]


def test_the_choice_follows_the_budget_and_the_free_variables():
    assert choose_optimizer(QuotaSpace(((8, 4),)), 70) == "brute-force"
    assert choose_optimizer(QuotaSpace(((8, 4),)), 69) == "nomad"
    assert choose_optimizer(QuotaSpace(((50, 25),)), 100) == "nomad"
    assert choose_optimizer(QuotaSpace(((50, 25), (30, 30), (9, 0))), 100) == "nomad"
    assert choose_optimizer(QuotaSpace(((51, 25),)), 100) == "one-plus-one"


def test_a_misspelt_optimizer_gets_a_suggestion():
    with pytest.raises(BoschError, match="did you mean 'nomad'"):
        minimize(SPACE, lambda bits: 0.0, budget=5, seed=1, optimizer="nomda")


def test_optimizers_know_nothing_of_models():
    code = inspect.cleandoc("""
        import sys
        from bosch.optimizers import QuotaSpace, minimize
        minimize(QuotaSpace(((5, 2),)), lambda bits: float(bits[0]), budget=5, seed=1, optimizer="nomad")
        assert not {"torch", "transformers", "nevergrad"} & set(sys.modules)
    """)
    subprocess.run([sys.executable, "-c", code], check=True)

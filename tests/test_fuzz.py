"""Junk for every option and in every file that is read: a sentence and status 2, never a traceback, and nothing lost.

The three are drawn two hundred times here, always the same draws, and a thousand times and more in the slow tests.
"""

import argparse
import contextlib
import copy
import io
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bosch
from bosch import BoschError
from bosch.cli import app, main
from bosch.common.output import LOCK
from bosch.heads import HeadLayout, HeadMask
from small_search import snapshot
from tiny_checkpoint import TINY

ANY_FIXTURE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
QUICK = settings(max_examples=50, derandomize=True, deadline=None, suppress_health_check=ANY_FIXTURE)
QUICK_FRONT = settings(QUICK, max_examples=100)
SLOW = settings(QUICK, max_examples=1700, derandomize=False)

# ----------------------------------------------------------------------------------------------------------------------
# The commands, valid and small
# ----------------------------------------------------------------------------------------------------------------------

EXAMPLES = f"--window 8 --lengths 96 --examples 2 --heldout 2 --tasks niah_single_1 --dtype float32 --model {TINY}"
COMMANDS = {
    "search": f"search {EXAMPLES} --ratio 0.25 --method intr",
    "compare": f"compare {EXAMPLES} --ratios 0.25 --methods intr,dcam",
    "eval": f"eval {TINY} --tasks niah_single_1 --lengths 96 --examples 2",
    "bench": f"bench --model {TINY} --ratios 0.5 --window 8 --contexts 32 --new-tokens 2",
    "train": "train {world}/export --texts {world}/text.txt --tokens 64 --tokens-per-step 32 --sequence-length 32 "
    "--precision float32 --eval-every 64 --tasks niah_single_1 --lengths 96 --heldout 2",
    "export": f"export --model {TINY} --mask {{world}}/a.json",
    "generate": "generate {world}/export --prompt Grass --max-new-tokens 2",
    "methods": "methods",
    "analyze overlap": "analyze overlap {world}/a.json {world}/b.json",
    "analyze turnover": "analyze turnover {world}/a.json {world}/b.json",
    "analyze units": "analyze units {world}/a.json {world}/b.json",
    "analyze locality": "analyze locality {dcam}/unit_scores/dcam.json {dcam}",
    "analyze replacement": "analyze replacement {search} {dcam} --seeds 1",
    "analyze curves": "analyze curves {train}",
}
WITHOUT_OUTPUT = {"generate", "methods"}

CHILD = """
import json, sys
job = json.load(sys.stdin)
print(json.dumps({"model": {"class": "Toy", "units_per_layer": [4] * 6, "parameters": 1, "dtype": "float32",
                            "device": "cpu", "attention": "sdpa", "num_threads": 1}}))
names = "prefill_tokens_per_s", "decode_tokens_per_s", "peak_memory_bytes", "cache_bytes"
for context in job["contexts"]:
    print(json.dumps({"measurement": {"context": context, **dict.fromkeys(names, 8)}}), flush=True)
"""
"""In place of the process that measures a model."""


def attempt(words: list[str]) -> tuple[int, str]:
    """The exit status, whichever way it is given, and what was said of a mistake."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    said = [line for line in error.getvalue().splitlines() if line.startswith("bosch: error: ")]
    assert status in (0, 2), error.getvalue()
    assert len(said) == (status == 2), error.getvalue()
    return status, "".join(said)


def content(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file but the locks, which say nothing."""
    return {name: data for name, data in snapshot(path).items() if Path(name).name != LOCK}


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory) -> Iterator[None]:
    """No hub, and benchmarks that measure nothing."""
    script = tmp_path_factory.mktemp("child") / "child.py"
    script.write_text(CHILD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("bosch.bench.children.COMMAND", [sys.executable, str(script)])
        yield


@pytest.fixture(scope="module")
def places(tmp_path_factory, alone) -> dict[str, Path]:
    """What the commands read, and a finished run of those that are read again."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("fuzz")
    found = {name: folder / name for name in ("world", "search", "dcam", "compare", "eval", "bench", "train")}
    world = found["world"]
    shutil.copytree(TINY, world / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(world / "tiny")
    tokenizer.eos_token = "<bos>"
    tokenizer.save_pretrained(world / "tiny")
    full = HeadMask.all_full(HeadLayout((4,) * 6), 8)
    full.localize([(0, 0)]).save(world / "a.json")
    full.localize([(0, 1), (1, 2)]).save(world / "b.json")
    (world / "text.txt").write_text("The grass is green. The sky is blue. " * 30)
    pairs = [{"prompt": f"The grass is green. The sky is {word}.", "answer": " green"} for word in "abcdef"]
    (world / "own.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    first = ["export", "--model", str(world / "tiny"), "--mask", str(world / "b.json")]
    assert attempt([*first, "--output", str(world / "export")])[0] == 0
    for name in ("search", "compare", "eval", "bench", "train"):
        words = COMMANDS[name].format(**found).split()
        assert attempt([*words, "--output", str(found[name])]) == (0, "")
    larger = COMMANDS["search"].replace("intr", "dcam").replace("0.25", "0.5")
    assert attempt([*larger.split(), "--output", str(found["dcam"])]) == (0, "")
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Options
# ----------------------------------------------------------------------------------------------------------------------

HUGE = "99999999999999999999"
JUNK = ("", " ", "-1", "0", "1", "nan", "inf", "-inf", "1e999", "0.5", "abc", "../x", ",", "1,2", "=", "a=b", HUGE,
        "\ud800", "\udcff", "\u202e\U0001f600", "x" * 300, "{directory}", "{missing}", "{binary}", "{mask}", "{text}",
        "{missing}\0")  # fmt: skip

TOO_LARGE = {"examples", "heldout", "seeds", "new_tokens", "max_new_tokens", "tokens", "tokens_per_step",
             "sequence_length", "lora_rank"}  # fmt: skip
"""Options of which a huge number is a huge task, and as such well-formed."""
ELSEWHERE = {"ray", "workers", "harness", "help"}
"""Options that start other processes, fetch from the hub, or end the command before it begins."""


def find_options(command: str) -> dict[str, argparse.Action]:
    """The options of a command, by the names of their values."""
    parser: argparse.ArgumentParser = app._make_parser()
    for word in command.split():
        assert parser._subparsers
        parser = next(action.choices[word] for action in parser._subparsers._actions if action.choices)
    options = [one for one in parser._actions if one.option_strings and one.option_strings[0] != "-h"]
    return {one.option_strings[-1]: one for one in options if one.dest not in ELSEWHERE}


@st.composite
def edited_commands(draw: st.DrawFn) -> tuple[str, list[list[str]]]:
    """A command, and one or two of its options with junk for a value."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    known = find_options(name)
    changes = []
    for option in draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=2)) if known else ():
        if known[option].nargs == 0:
            changes.append([option])
            continue
        value = draw(st.sampled_from(JUNK))
        if not (value == HUGE and known[option].dest in TOO_LARGE):
            changes.append([f"{option}={value}"])
    return name, changes


def check_options(command: tuple[str, list[list[str]]], places: dict[str, Path]) -> None:
    name, changes = command
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "kept").mkdir()
        (path / "kept" / "thesis.tex").write_text("a year of work")
        (path / "binary").write_bytes(b"\xff\x00\xfe")
        words = {"directory": path / "kept", "missing": path / "no" / "such", "binary": path / "binary",
                 "mask": places["world"] / "a.json", "text": places["world"] / "text.txt"}  # fmt: skip
        base = COMMANDS[name].format(**places).split()
        output = [] if name in WITHOUT_OUTPUT else ["--output", str(path / "out")]
        junk = [part.replace("{" + key + "}", str(value)) if "{" + key + "}" in part else part
                for change in changes for part in change for key, value in [placed(part, words)]]  # fmt: skip
        before = [content(place) for place in (*places.values(), path)]
        with contextlib.chdir(path):
            status, _ = attempt([*base, *output, *junk])
        after = [content(place) for place in (*places.values(), path)]
        assert after[:-1] == before[:-1]
        assert before[-1].items() <= after[-1].items()
        assert status == 0 or after[-1] == before[-1]


def placed(part: str, words: dict[str, Path]) -> tuple[str, Path]:
    """The path that a word names, if any."""
    return next(((key, path) for key, path in words.items() if "{" + key + "}" in part), ("", Path()))


@QUICK
@given(command=edited_commands())
def test_junk_for_an_option_is_a_sentence_and_changes_nothing(command, places):
    check_options(command, places)


@pytest.mark.slow
@SLOW
@given(command=edited_commands())
def test_junk_for_an_option_is_a_sentence_and_changes_nothing_many_times(command, places):
    check_options(command, places)


# ----------------------------------------------------------------------------------------------------------------------
# Files
# ----------------------------------------------------------------------------------------------------------------------

READ_RUN = ("generate {place} --prompt Grass --max-new-tokens 1", "export {place} --output {out}",
            "eval {place} --tasks niah_single_1 --lengths 96 --examples 1 --output {out}",
            "analyze units {place} {world}/a.json --output {out}", "analyze turnover {world}/a.json {place}",
            "analyze replacement {search} {place} --seeds 1 --output {out}")  # fmt: skip
READERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "search": (COMMANDS["search"], READ_RUN),
    "dcam": (COMMANDS["search"].replace("intr", "dcam").replace("0.25", "0.5"),
             (*READ_RUN, "analyze locality {place}/unit_scores/dcam.json {place} --output {out}")),
    "compare": (COMMANDS["compare"], ()),
    "eval": (COMMANDS["eval"], ()),
    "bench": (COMMANDS["bench"], ()),
    "train": (COMMANDS["train"], ("analyze curves {place} --output {out}",)),
    "world/export": ("", ("generate {place} --prompt Grass --max-new-tokens 1",
                          "eval {place} --tasks niah_single_1 --lengths 96 --examples 1 --output {out}",
                          "export --model {place} --mask {world}/a.json --output {out}")),
    "world/own.jsonl": ("", (f"search {EXAMPLES} --ratio 0.25 --method intr --data {{place}} --output {{out}}",
                             f"eval {TINY} --tasks own --data {{place}} --examples 2 --output {{out}}")),
}  # fmt: skip
"""For each place the command that goes on with it, and those that only read it."""

UNFINISHED = ("report.md", "mask.json", "scores.json", "rows.csv")
VALUES = st.sampled_from([None, "", "abc", "../x", -1, 0, 1, 0.5, 2**70, 1e308, True, [], [1], {}, {"a": 1}, [[]]])
TEXTS = st.sampled_from([b"", b"[", b"{}", b"[]", b"null", b"\xff\xfe", b"NaN", b"[" * 5000, b"9" * 5000, b"\n"])


def files_of(place: Path) -> list[str]:
    """The files of JSON, and of lines of it, below a place or at it."""
    if place.is_file():
        return ["."]
    # Those of a tokenizer, and of transformers' kinds, are read by transformers.
    theirs = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"}
    found = sorted(place.rglob("*.json*"))
    return [
        str(one.relative_to(place)) for one in found if one.name not in theirs and "model.safetensors" not in one.name
    ]


def edit_value(data: Any, draw: Callable[[Any], Any]) -> Any:
    """The data with one value, at any depth, replaced or left out."""
    data = copy.deepcopy(data)
    holder, steps = data, 0
    while isinstance(holder, dict | list) and holder:
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        inner, steps = holder[key], steps + 1
        if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
            holder = inner
            continue
        if draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = draw(VALUES)
        return data
    return draw(VALUES)


def edit_file(name: str, old: bytes, draw: Callable[[Any], Any]) -> bytes:
    """The content of a file after somebody was at it."""
    kind = draw(st.sampled_from(["value", "value", "value", "value", "cut", "text", "NaN", "twice"]))
    lines = old.splitlines()
    if kind == "text":
        return draw(TEXTS)
    if kind == "cut":
        return old[: draw(st.integers(0, len(old)))]
    if not name.endswith(".jsonl") and name != ".":
        data = json.loads(old)
        if kind == "twice":
            return old + old
        text = json.dumps(edit_value(data, draw))
        return (text.replace("1", "NaN", 1) if kind == "NaN" else text).encode()
    number = draw(st.integers(0, len(lines) - 1))
    is_journal = not lines[number].startswith(b"{")
    line = lines[number][9:] if is_journal else lines[number]
    if kind == "twice":
        lines.insert(number, lines[number])
    else:
        line = json.dumps(edit_value(json.loads(line), draw)).encode()
        if kind == "NaN":
            line = line.replace(b"0", b"NaN", 1)
        lines[number] = b"%08x %s" % (zlib.crc32(line), line) if is_journal else line
    return b"\n".join(lines) + b"\n"


def check_files(draw: Callable[[Any], Any], places: dict[str, Path]) -> None:
    kind = draw(st.sampled_from(sorted(READERS)))
    source = places["world"].parent / kind
    name = draw(st.sampled_from(files_of(source)))
    goes_on, readers = READERS[kind]
    is_resumed = bool(goes_on) and (not readers or draw(st.booleans()))
    with tempfile.TemporaryDirectory() as folder:
        place, out = Path(folder) / "place", Path(folder) / "out"
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, place)
        edited = place / name
        edited.write_bytes(edit_file(name, edited.read_bytes(), draw))
        before = content(Path(folder))
        others = [content(one) for one in places.values()]
        if is_resumed:
            if draw(st.booleans()):
                for one in UNFINISHED:
                    (place / one).unlink(missing_ok=True)
            was = edited.read_bytes() if edited.exists() else None
            status, _ = attempt([*goes_on.format(**places).split(), "--output", str(place)])
            # The half line that a kill leaves at the end of a journal is dropped.
            if status == 2 and was is not None and not name.endswith(".jsonl"):
                assert edited.read_bytes() == was
        else:
            words = draw(st.sampled_from(readers)).format(**places, place=place, out=out)
            status, _ = attempt(words.split())
            after = content(Path(folder))
            assert before.items() <= after.items()
            assert status == 0 or after == before
        assert [content(one) for one in places.values()] == others


@QUICK
@given(data=st.data())
def test_a_file_that_somebody_was_at_is_a_sentence_and_changes_nothing(data, places):
    check_files(data.draw, places)


@pytest.mark.slow
@SLOW
@given(data=st.data())
def test_a_file_that_somebody_was_at_is_a_sentence_and_changes_nothing_many_times(data, places):
    check_files(data.draw, places)


# ----------------------------------------------------------------------------------------------------------------------
# From Python
# ----------------------------------------------------------------------------------------------------------------------

ANYTHING = st.sampled_from(
    [None, "", "abc", "0.5", -1, 0, 1, 2, 0.5, -0.5, 2**70, float("nan"), float("inf"), True, (), [], [1], [None], {},
     {"a": 1}, ("a", 1), object(), b"x", Path("no/such"), [[]], "\0"]
)  # fmt: skip
SMALL: dict[str, Any] = {"window": 8, "lengths": 96, "examples": 2, "heldout": 2, "tasks": "niah_single_1"}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "search": (bosch.search, {"model": str(TINY), "ratio": 0.25, "method": "intr", **SMALL}),
    "compare": (bosch.compare, {"model": str(TINY), "ratios": 0.25, "methods": "intr", **SMALL}),
    "evaluate": (bosch.evaluate, {"model": str(TINY), "tasks": "niah_single_1", "lengths": 96, "examples": 2}),
    "export": (bosch.export, {"hybrid": "no/such", "output": "no/output", "max_shard_size": "5GB", "yarn": None}),
    "load_model": (bosch.load_model, {"name_or_path": str(TINY), "dtype": "float32", "device": "cpu", "yarn": None}),
    "HeadMask.load": (HeadMask.load, {"path": "no/such"}),
}


def check_front(draw: Callable[[Any], Any]) -> None:
    name = draw(st.sampled_from(sorted(CALLS)))
    call, options = CALLS[name]
    changed = draw(st.dictionaries(st.sampled_from(sorted(options)), ANYTHING, min_size=1, max_size=2))
    if any(changed.get(one) == 2**70 for one in TOO_LARGE):
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.suppress(BoschError):
        call(**options | changed)


@QUICK_FRONT
@given(data=st.data())
def test_junk_from_python_is_a_bosch_error(data, alone):
    check_front(data.draw)


@pytest.mark.slow
@SLOW
@given(data=st.data())
def test_junk_from_python_is_a_bosch_error_many_times(data, alone):
    check_front(data.draw)

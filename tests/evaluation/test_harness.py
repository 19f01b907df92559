"""lm-eval on live hybrids: the same numbers as by its own way of loading, and what it must not do."""

import json
import shutil
import sys

import pytest
from transformers import AutoTokenizer

from bosch.cli import main
from bosch.evaluation import harness
from bosch.evaluation.rows import EvalRows, Row
from bosch.evaluation.settings import EvalSettings
from tiny_checkpoint import TINY

lm_eval = pytest.importorskip("lm_eval")

TASK = """\
task: bosch_spells
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A task file of a user's, and its data: which of three continuations is the likeliest."""
    path = tmp_path_factory.mktemp("tasks")
    question = (
        "the special magic number for happy cat is : {} 8 3 1 . " * 4 + "the special magic number for happy cat is :"
    )
    lines = [
        {"question": question.replace("{}", str(number)), "choices": [f"{number} 8 3 1", "9 9", "the grass"],
         "answer": number % 3}
        for number in range(9)
    ]  # fmt: skip
    (path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "spells.yaml").write_text(TASK.format(data=path / "data.jsonl"))
    return path


def run(output, *words, tasks="bosch_spells", **changes) -> int:
    options = {"tasks": tasks, "dtype": "float32", "output": output, **changes}
    named = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return main(["eval", *map(str, words), "--harness", *named])


def test_a_local_task_gives_the_same_on_the_live_hybrid_and_on_the_exported_one(
    tasks, mask_path, exported_half, tmp_path
):
    assert run(tmp_path / "live", TINY, mask=mask_path, include=tasks) == 0
    rows = {row.target: row for row in EvalRows.load(tmp_path / "live" / "rows.json").rows}
    manager = lm_eval.tasks.TaskManager(include_path=tasks, include_defaults=False)
    for target, path, trusts in (("tiny", TINY, False), ("by-hand", exported_half, True)):
        found = lm_eval.simple_evaluate(
            "hf",
            model_args={"pretrained": str(path), "dtype": "float32", "trust_remote_code": trusts},
            device="cpu",
            tasks=["bosch_spells"],
            task_manager=manager,
            bootstrap_iters=0,
        )
        expected = {name: found["results"]["bosch_spells"][name] for name in ("acc,none", "acc_norm,none")}
        assert rows[target].scores == expected
        assert rows[target].num_examples == 9
    report = (tmp_path / "live" / "report.md").read_text()
    assert "| score " in report
    assert "bosch_spells: acc,none" in report


def test_a_limited_run_is_marked_as_no_result(tasks, tmp_path):
    assert run(tmp_path / "run", TINY, include=tasks, limit=2) == 0
    (row,) = EvalRows.load(tmp_path / "run" / "rows.json").rows
    assert (row.num_examples, row.is_limited) == (2, True)
    assert "not a result" in (tmp_path / "run" / "report.md").read_text()


@pytest.mark.slow
def test_mistakes_are_one_sentence(tasks, tmp_path, capsys):
    assert run(tmp_path / "run", TINY, tasks="bosch_spell", include=tasks) == 2
    assert "lm-eval knows no task 'bosch_spell'; did you mean 'bosch_spells'?" in capsys.readouterr().err
    assert run(tmp_path / "run", TINY, include=tmp_path / "nowhere") == 2
    assert "there is no directory" in capsys.readouterr().err
    assert run(tmp_path / "run", TINY, tasks="niah", lengths=512) == 2
    assert "lm-eval scores RULER's tasks at 4096, 8192" in capsys.readouterr().err


def test_a_placeholder_is_no_score():
    results = {
        "a": {"alias": "a", "4096,none": -1, "8192,none": 0.25, "8192_stderr,none": 0.1, "f1,none": float("nan")}
    }
    assert harness._scores("a", results) == {"8192,none": 0.25}
    assert harness._scores("group", results) == {"a 8192,none": 0.25}


def test_a_limit_takes_examples_of_every_length(tiny, monkeypatch):
    """RULER's tasks put their lengths one after the other, and a limit would cut all but the first off."""
    asked = []

    def evaluate(subject, name, manager, settings):
        asked.append((name, manager.metadata["max_seq_lengths"], settings.limit))
        return {
            "scores": {f"{manager.metadata['max_seq_lengths'][0]},none": 0.5},
            "num_examples": 2,
            "is_limited": True,
        }

    monkeypatch.setattr(harness, "_evaluate", evaluate)
    monkeypatch.setattr(harness, "_check_eos", lambda *_: None)
    settings = EvalSettings(targets=("m",), tasks=("niah_single_1",), lengths=(4096, 8192), limit=2, harness=True)
    subject = type("Subject", (), {"tokenizer": tiny[1]})()
    rows = [
        Row("m", part.group, part.task, part.length, **part.measure(subject))
        for part in harness.harness_parts(["niah_single_1"], settings)
    ]
    assert asked == [("niah_single_1", [4096], 2), ("niah_single_1", [8192], 2)]
    assert [(row.length, row.num_examples, dict(row.scores)) for row in rows] == [
        (4096, 2, {"generated": 0.5}),
        (8192, 2, {"generated": 0.5}),
    ]


@pytest.fixture
def tiny_with_eos(tmp_path):
    """A copy of the tiny model, whose tokenizer has an EOS."""
    path = tmp_path / "model"
    shutil.copytree(TINY, path)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.eos_token = tokenizer.bos_token
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.slow
def test_rulers_tasks_run_on_a_live_model(tiny_with_eos, tmp_path, capsys):
    """From the command line to the table; a model without an EOS is refused, as lm-eval needs one."""
    options = {"tasks": "niah_single_1", "lengths": 4096, "limit": 2, "yarn": 4}
    assert run(tmp_path / "none", TINY, **options) == 2
    assert "and this tokenizer has none" in capsys.readouterr().err
    assert run(tmp_path / "run", tiny_with_eos, **options) == 0
    (row,) = EvalRows.load(tmp_path / "run" / "rows.json").rows
    assert (row.group, row.task, row.length, row.num_examples) == ("niah", "niah_single_1", 4096, 2)
    assert row.is_limited
    assert 0 <= row.scores["generated"] <= 1
    report = (tmp_path / "run" / "report.md").read_text()
    assert "## Needles at 4096 tokens, generated" in report
    assert "not a result" in report


def test_code_beside_a_tokenizer_is_not_run_by_rulers_tasks(tiny, tmp_path, monkeypatch):
    """lm-eval loads the tokenizer anew, always with remote code allowed."""
    from lm_eval.tasks.ruler.common_utils import get_tokenizer

    folder, marker = tmp_path / "tokenizer", tmp_path / "marker"
    tiny[1].save_pretrained(folder)
    (folder / "evil.py").write_text(
        f"open({str(marker)!r}, 'w')\nfrom transformers import PreTrainedTokenizerFast\n"
        "class Evil(PreTrainedTokenizerFast):\n    pass\n"
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"auto_map": {"AutoTokenizer": [None, "evil.Evil"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    get_tokenizer(tokenizer=str(folder))
    assert marker.exists()  # the danger is real
    marker.unlink()
    for name in [name for name in sys.modules if "evil" in name]:
        monkeypatch.delitem(sys.modules, name)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    with harness._plain_copy(tokenizer) as copy:
        assert not list(copy.rglob("*.py"))
        loaded = get_tokenizer(tokenizer=str(copy))
    assert not marker.exists()
    assert loaded("the special magic").input_ids == tokenizer("the special magic").input_ids


@pytest.mark.slow
def test_no_network_is_one_sentence(tiny_with_eos, tmp_path, capsys, monkeypatch):
    import socket

    def refuse(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)  # or it asks again and again for half a minute
    assert run(tmp_path / "run", tiny_with_eos, tasks="gsm8k") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("bosch: error: lm-eval cannot run gsm8k: ")
    assert "or local files as --benchmarks without --harness" in error


def test_rulers_score_is_ours(tiny):
    """The score of a generated text: lm-eval's own function on the same answers."""
    from lm_eval.tasks.ruler.common_utils import process_results

    texts = ["It is 5831.", "5832", "", "is\x075831", "ABC-def"]
    answers = ["5831", "5831", "5831", "5831", "abc-DEF"]
    for text, answer in zip(texts, answers, strict=True):
        expected = process_results({"max_length": 4096, "outputs": [answer]}, [text])["4096"]
        assert (answer.lower() in text.lower()) == bool(expected)

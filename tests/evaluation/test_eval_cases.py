"""Faults that other projects had in their evaluations: prompts, begins of sequences, networks, code of others."""

import json
import pickle
import shutil
import socket

import pytest
import torch
from transformers import AutoTokenizer

from bosch.calibration import make_examples
from bosch.cli import main
from bosch.evaluation import needles
from bosch.evaluation.needles import generate_texts, score_answers
from tiny_checkpoint import TINY

CHAT = "{{ bos_token }} {{ messages[0].content }} ."
COMMAND = ["eval", str(TINY), "--tasks", "niah_single_1", "--lengths", "149", "--examples", "2", "--dtype", "float32"]


def made(tokenizer, chat: bool):
    options = {"tasks": ["niah_single_1"], "lengths": [149], "num_examples": 3, "seed": 0, "split": "heldout"}
    return make_examples(tokenizer, chat=chat, **options).examples


@pytest.fixture
def tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.chat_template = CHAT
    return tokenizer


@pytest.mark.parametrize("chat", [False, True])
def test_the_text_that_is_generated_from_ends_with_the_answer_prefix(tiny, tokenizer, chat, monkeypatch):
    sent = []
    monkeypatch.setattr(needles, "generate_answers", lambda *given, **_: sent.extend(given[2]) or [""] * len(given[2]))
    generate_texts(tiny[0], tokenizer, made(tokenizer, chat), 5, 1000)
    assert len(sent) == 3
    assert all(prompt.endswith("mentioned in the provided text is") for prompt in sent)
    assert all(prompt.startswith("<bos>") == chat for prompt in sent)


@pytest.mark.parametrize("chat", [False, True])
def test_both_ways_send_a_bos_once_and_first_or_never(tiny, tokenizer, chat):
    """Three of them, and the dense model is worse than the sparse one."""
    model, bos = tiny[0], tokenizer.bos_token_id
    entered: list[torch.Tensor] = []
    hook = model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0][0]))
    try:
        for work in (lambda one: score_answers(model, [one], 1000), self_generated(model, tokenizer)):
            for example in made(tokenizer, chat):
                entered.clear()
                work(example)
                prompt = entered[0].tolist()
                adds_bos = chat or tokenizer("a")["input_ids"][0] == bos
                assert [place for place, token in enumerate(prompt) if token == bos] == [0] * adds_bos
                assert all(bos not in ids.tolist() for ids in entered[1:])
    finally:
        hook.remove()


def self_generated(model, tokenizer):
    return lambda example: generate_texts(model, tokenizer, [example], 2, 1000)


def test_needles_need_no_network_and_longbench_says_what_to_fetch(tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert main([*COMMAND, "--output", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    words = [
        "eval",
        str(TINY),
        "--tasks",
        "longbench",
        "--benchmarks",
        str(tmp_path),
        "--output",
        str(tmp_path / "other"),
    ]
    assert main(words) == 2
    assert "unpack LongBench's data.zip (data set THUDM/LongBench) there" in capsys.readouterr().err


def test_rows_that_are_a_pickle_are_refused_and_not_run(tmp_path, capsys):
    class Marker:
        def __reduce__(self):
            return open, (str(tmp_path / "marker"), "w")

    assert main([*COMMAND, "--output", str(tmp_path / "run")]) == 0
    (tmp_path / "run" / "rows.json").write_bytes(pickle.dumps(Marker()))
    capsys.readouterr()
    assert main([*COMMAND, "--output", str(tmp_path / "run")]) == 2
    assert "rows.json: not valid JSON" in capsys.readouterr().err
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"schema": "bosch.eval-rows/1"}',
        '{"schema": "bosch.eval-rows/1", "models": {}, "rows": [{"a": 1}]}',
    ],
)
def test_rows_of_something_else_are_refused(content, tmp_path, capsys):
    assert main([*COMMAND, "--output", str(tmp_path / "run")]) == 0
    (tmp_path / "run" / "rows.json").write_text(content)
    assert main([*COMMAND, "--output", str(tmp_path / "run")]) == 2
    assert "rows.json" in capsys.readouterr().err


def test_code_beside_a_model_is_not_run_unless_it_is_trusted(tmp_path, capsys):
    folder, marker = tmp_path / "model", tmp_path / "marker"
    shutil.copytree(TINY, folder)
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    for name, auto_map in (
        ("config.json", {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}),
        ("tokenizer_config.json", {"AutoTokenizer": [None, "evil.Tokenizer"]}),
    ):
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(data | {"auto_map": auto_map}))
    main(["eval", str(folder), *COMMAND[2:], "--output", str(tmp_path / "run")])
    assert not marker.exists()

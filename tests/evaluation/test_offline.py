import sys

import pytest
import torch
from local_data import document, problem, write_lines
from transformers import BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM

from bosch.errors import BoschError
from bosch.evaluation import metrics, offline
from bosch.evaluation.offline import evaluate_gsm8k, evaluate_longbench
from bosch.evaluation.results import TaskResult
from calibration.small_tokenizers import byte_level


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = byte_level(split_digits=False)
    tokenizer.chat_template = "<user>{{ messages[0].content }}<assistant>"
    return tokenizer


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
        max_position_embeddings=1024,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    return model


def likeliest(model, tokenizer, prompt: str, num_tokens: int) -> str:
    """Plain greedy decoding, a whole pass for each token."""
    ids = tokenizer(prompt)["input_ids"]
    length = len(ids)
    for _ in range(num_tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tokenizer.decode(ids[length:])


@pytest.fixture
def asked(monkeypatch):
    """The prompts that would be answered; every answer is "#### 1 Ann"."""
    prompts = []

    def answer(model, tokenizer, found, *_, **__):
        prompts.extend(found)
        return ["#### 1 Ann"] * len(found)

    monkeypatch.setattr(offline, "generate_answers", answer)
    return prompts


def test_longbench_from_files_to_a_score(model, tokenizer, tmp_path):
    lines = [document("lcc", context="def f():\n", input=""), document("lcc", context="x = 1\ny = 2\n", input="")]
    prompt = "Please complete the code given below. \ndef f():\nNext line of code:\n"
    first = likeliest(model, tokenizer, prompt, 64).lstrip("\n").split("\n")
    line = next(line for line in first if not any(mark in line for mark in ("`", "#", "//")))
    assert line
    lines[0]["answers"], lines[1]["answers"] = [line], [""]  # the one is the model's answer, the other nobody's
    write_lines(tmp_path / "lcc.jsonl", lines)
    assert evaluate_longbench(model, tokenizer, tmp_path, "lcc") == TaskResult("lcc", 0.5, 2)
    assert evaluate_longbench(model, tokenizer, tmp_path, "lcc", batch_size=2) == TaskResult("lcc", 0.5, 2)
    limited = evaluate_longbench(model, tokenizer, tmp_path, "lcc", limit=1)
    assert limited == TaskResult("lcc", 1.0, 1, is_limited=True)


def test_gsm8k_from_files_to_a_score(model, tokenizer, tmp_path, asked):
    write_lines(tmp_path / "gsm8k.jsonl", [problem(number) for number in (1, 2, 3)])
    write_lines(tmp_path / "gsm8k_train.jsonl", [problem(number) for number in range(10, 17)])
    assert evaluate_gsm8k(model, tokenizer, tmp_path) == TaskResult("gsm8k", 1 / 3, 3)
    assert evaluate_gsm8k(model, tokenizer, tmp_path, limit=2) == TaskResult("gsm8k", 0.5, 2, is_limited=True)
    assert asked[0] == asked[3]
    assert asked[0].endswith("Question: What is 1?\nAnswer:")
    assert asked[0].count("Question: ") == 6


def test_gsm8k_answers_are_generated(model, tokenizer, tmp_path):
    write_lines(tmp_path / "gsm8k.jsonl", [problem(1)])
    write_lines(tmp_path / "gsm8k_train.jsonl", [problem(number) for number in range(10, 15)])
    assert evaluate_gsm8k(model, tokenizer, tmp_path) == TaskResult("gsm8k", 0.0, 1)  # its weights are random


def test_prompts_lose_their_middle_where_the_model_is_too_short(model, tokenizer, tmp_path, asked):
    long = document("qasper", context="first " + "word " * 3000 + "last")
    write_lines(tmp_path / "qasper.jsonl", [long, document("qasper")])
    evaluate_longbench(model, tokenizer, tmp_path, "qasper")
    evaluate_longbench(model, tokenizer, tmp_path, "qasper", max_prompt_tokens=501)
    lengths = [len(tokenizer(prompt)["input_ids"]) for prompt in asked]
    assert 1024 - 128 - 2 <= lengths[0] <= 1024 - 128  # 128 tokens are left for the answer
    assert 499 <= lengths[2] <= 501
    for prompt in (asked[0], asked[2]):
        assert prompt.startswith("You are given a scientific article and a question.")
        assert prompt.endswith("Question: Who wrote it?\n\nAnswer:")
    assert "Article: A book. Ann wrote it.\n\n Answer the question" in asked[1]


@pytest.mark.parametrize(("task", "uses_chat"), [("qasper", True), ("triviaqa", False), ("repobench-p", False)])
def test_chat_where_longbench_does(model, tokenizer, tmp_path, asked, task, uses_chat):
    write_lines(tmp_path / f"{task}.jsonl", [document(task, context="word " * 3000)])
    evaluate_longbench(model, tokenizer, tmp_path, task, chat=True, max_prompt_tokens=503)
    evaluate_longbench(model, tokenizer, tmp_path, task)
    assert (asked[0].startswith("<user>"), asked[0].endswith("<assistant>")) == (uses_chat, uses_chat)
    assert len(tokenizer(asked[0])["input_ids"]) <= 503
    assert "<user>" not in asked[1]


def test_each_task_has_its_own_limit(model, tokenizer, tmp_path, asked):
    for task in ("qasper", "hotpotqa"):
        write_lines(tmp_path / f"{task}.jsonl", [document(task)] * 5)
        assert evaluate_longbench(model, tokenizer, tmp_path, task, limit=2).num_examples == 2


def test_what_cannot_be_scored_shows_before_anything_is_generated(model, tokenizer, tmp_path, asked, monkeypatch):
    write_lines(tmp_path / "passage_retrieval_en.jsonl", [document("passage_retrieval_en")])
    with pytest.raises(BoschError, match="the reference 'Ann' names no paragraph"):
        evaluate_longbench(model, tokenizer, tmp_path, "passage_retrieval_en")
    write_lines(tmp_path / "trec.jsonl", [document("trec")])
    with pytest.raises(BoschError, match="a classification needs the names of all classes"):
        evaluate_longbench(model, tokenizer, tmp_path, "trec")
    write_lines(tmp_path / "dureader.jsonl", [document("dureader")])
    metrics._segmenter.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(BoschError, match="needs jieba"):
        evaluate_longbench(model, tokenizer, tmp_path, "dureader")
    assert not asked


def test_a_task_misspelt(model, tokenizer, tmp_path):
    with pytest.raises(BoschError, match="unknown LongBench task 'qaspar'; did you mean 'qasper'"):
        evaluate_longbench(model, tokenizer, tmp_path, "qaspar")


def test_a_model_too_short_for_the_examples(model, tokenizer, tmp_path):
    write_lines(tmp_path / "gsm8k.jsonl", [problem(1) | {"question": "word " * 900}])
    write_lines(tmp_path / "gsm8k_train.jsonl", [problem(number) for number in range(10, 15)])
    with pytest.raises(BoschError, match="exceed the 1024 positions of the model"):
        evaluate_gsm8k(model, tokenizer, tmp_path)


def test_a_model_that_does_not_say_how_long_it_is(tokenizer, tmp_path, asked):
    write_lines(tmp_path / "qasper.jsonl", [document("qasper")])
    model = BloomForCausalLM(BloomConfig(vocab_size=len(tokenizer), hidden_size=32, n_layer=1, n_head=2))
    with pytest.raises(BoschError, match="does not say how many positions it has; expected a limit for the prompts"):
        evaluate_longbench(model, tokenizer, tmp_path, "qasper")
    assert evaluate_longbench(model, tokenizer, tmp_path, "qasper", max_prompt_tokens=512).num_examples == 1

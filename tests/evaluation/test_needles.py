"""Needles on a live model, against the search's own evaluator, plain passes, and definitions written out."""

import dataclasses

import pytest
import torch

from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.deploy import hybridize
from bosch.evaluation import needles
from bosch.evaluation.needles import (
    depth_of,
    find_in_generated,
    generate_texts,
    is_first_value,
    measure_needles,
    score_answers,
)
from bosch.evaluation.settings import EvalSettings
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Score
from calibration.small_tokenizers import byte_level
from evaluation.conftest import LAYOUT, MASK
from tiny_checkpoint import TINY

TASKS = ["niah_single_1", "niah_single_2", "niah_multikey_1"]


def examples_of(tokenizer, lengths=(131, 197), count=8):
    options = {"num_examples": count, "seed": 3, "split": "heldout"}
    return make_examples(tokenizer, tasks=TASKS, lengths=lengths, **options)


@pytest.mark.parametrize("mask", [None, MASK])
def test_the_live_model_scores_as_a_search_scores_its_mask(tiny, mask):
    model, tokenizer = tiny
    made = examples_of(tokenizer)
    evaluator = Evaluator(Decoder(model), made, window=MASK.window, sinks=MASK.sinks)
    expected = evaluator.score(mask or HeadMask.all_full(LAYOUT, MASK.window, MASK.sinks))
    live = load_model(str(TINY), dtype="float32", device="cpu")[0]
    live = live if mask is None else hybridize(live, mask)
    for batch_tokens in (10_000, 400, 53):  # all in one batch; in pairs; one by one in chunks
        found = score_answers(live, made.examples, batch_tokens)
        assert found.hits == expected.hits
        assert found.nlls == pytest.approx(expected.nlls, abs=2e-4)
    assert mask or 0 < sum(expected.hits) < len(expected.hits)


def test_a_hit_is_what_greedy_decoding_answers(tiny):
    model, tokenizer = tiny
    made = examples_of(tokenizer, lengths=(151,), count=6).examples
    expected = []
    for example in made:
        ids = list(example.input_ids[: example.answer_start])
        for _ in range(example.num_answer_tokens):
            with torch.no_grad():
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        expected.append(tuple(ids) == example.input_ids)
    assert list(score_answers(model, made, 1000).hits) == expected
    texts = generate_texts(model, tokenizer, made, max(e.num_answer_tokens for e in made), 320)
    assert find_in_generated(tokenizer, made, texts) == expected
    assert any(expected)


@pytest.mark.parametrize(
    ("task", "answer", "text", "is_first"),
    [
        ("niah_single_1", "5831", " 5831. The number for it is 99.", True),
        ("niah_single_1", "5831", "It is 99, or 5831.", False),
        ("niah_single_1", "5831", "58312", False),
        ("niah_single_1", "5831", "no number", False),
        ("niah_multikey_3", "0a3f31ee-be0d-47ad-a26e-3ccd6ffd7c28", "0A3F31EE-BE0D-47AD-A26E-3CCD6FFD7C28", True),
        ("niah_multikey_3", "0a3f31ee-be0d-47ad-a26e-3ccd6ffd7c28", "5 of 0a3f31ee-be0d-47ad", False),
    ],
)  # fmt: skip
def test_the_first_value_of_a_text(tiny, task, answer, text, is_first):
    options = {"num_examples": 1, "seed": 0, "split": "heldout"}
    (example,) = make_examples(tiny[1], tasks=[task], lengths=[311], **options).examples
    assert is_first_value(dataclasses.replace(example, answer=answer), text) is is_first


def test_both_scores_of_generated_texts(tiny, monkeypatch):
    """Where the tokenizer writes the answers as they are; the tiny model's writes 98 30 for 9830."""
    settings = EvalSettings(targets=("m",), tasks=("niah",), examples=4, generate=True, new_tokens=9)
    monkeypatch.setattr(needles, "score_answers", lambda _, made, *__: Score((True,) * 4, (0.5,) * len(made)))

    def generate(model, tokenizer, made, *_):
        right = [needles._written(tokenizer, example) for example in made]
        return [f" {right[0]}. The", f"It is 7, or {right[1]}", f"{right[2]}5", "no number"]

    monkeypatch.setattr(needles, "generate_texts", generate)
    arguments = ("niah_single_1", 311, settings, None, lambda: None)
    found = measure_needles(None, byte_level(split_digits=True), *arguments)
    assert [(row["generated"], row["generated_first"]) for row in found["examples"]] == [
        (True, True),
        (True, False),
        (True, False),
        (False, False),
    ]
    assert found["scores"] == {"accuracy": 1.0, "nll": 0.5, "generated": 0.75, "generated_first": 0.25}
    found = measure_needles(None, tiny[1], *arguments)
    assert found["scores"] == {"accuracy": 1.0, "nll": 0.5, "generated": 0.75}


def test_depth_is_the_needles_place_among_the_prompts_tokens(tiny):
    for example in examples_of(tiny[1]).examples:
        needle = "One of the special magic"
        before = example.prompt[: example.prompt.index(needle)]
        share = len(tiny[1](before)["input_ids"]) / len(tiny[1](example.prompt)["input_ids"])
        if example.task.startswith("niah_single"):  # the only needle, so the first
            assert depth_of(example) == pytest.approx(share, abs=0.02)
        assert 0 <= depth_of(example) < 1


def test_a_part_does_not_depend_on_the_others_and_its_depths_are_even(tiny):
    model, tokenizer = tiny
    settings = EvalSettings(targets=("m",), tasks=("niah",), examples=5, generate=True, new_tokens=9)
    found = measure_needles(model, tokenizer, "niah_single_1", 149, settings, None, lambda: None)
    made = make_examples(
        tokenizer, tasks=["niah_single_1"], lengths=[149], num_examples=5, seed=0, split="heldout"
    ).examples
    assert sorted(example.depth for example in made) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert [row["depth"] for row in found["examples"]] == [round(depth_of(example), 4) for example in made]
    assert found["num_examples"] == 5
    for name in ("accuracy", "generated"):
        assert found["scores"][name] == sum(row[name] for row in found["examples"]) / 5
    assert found["scores"]["nll"] == pytest.approx(sum(row["nll"] for row in found["examples"]) / 5)


def test_evaluation_shares_no_needle_with_calibration(tiny):
    options = {"tasks": TASKS, "lengths": [149], "num_examples": 30, "seed": 0}
    answers = [
        {example.answer for example in make_examples(tiny[1], split=split, **options).examples}
        for split in ("calibration", "heldout")
    ]
    assert not answers[0] & answers[1]

import io
import sys

import pytest
import torch
from tokenizers import AddedToken
from transformers import GenerationConfig

from bosch.errors import BoschError
from bosch.evaluation.generation import generate_answers

PROMPTS = ["w20 w21 w22 w23", "w31", "w13 w1 w2 w50 w60 w61 w62", "w17 w5 w29 w11 w3 w2", "w8"]


def likeliest(model, prompt: str, num_tokens: int) -> list[str]:
    """Plain greedy decoding: a whole pass for each token, no cache, no padding, no batch."""
    ids = [int(word[1:]) for word in prompt.split()]
    length = len(ids)
    for _ in range(num_tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return [f"w{token}" for token in ids[length:]]


@pytest.fixture
def model(tiny_llama):
    tiny_llama.generation_config.eos_token_id = None
    return tiny_llama


@pytest.fixture
def answers(model):
    found = [likeliest(model, prompt, 7) for prompt in PROMPTS]
    assert len({tuple(answer) for answer in found}) == len(PROMPTS)  # else a mix-up could not be seen
    assert not any("w63" in answer for answer in found)
    return found


@pytest.mark.parametrize("batch_size", [1, 2, 5, 11])
def test_answers_are_the_likeliest_tokens_in_the_order_of_the_prompts(model, tiny_tokenizer, answers, batch_size):
    found = generate_answers(model, tiny_tokenizer, PROMPTS, 7, batch_size=batch_size)
    assert found == [" ".join(answer) for answer in answers]


def test_the_models_own_generation_settings_do_not_count(model, tiny_tokenizer, answers, recwarn):
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=3.0, top_k=5, top_p=0.5, repetition_penalty=9.0, num_beams=3, max_new_tokens=2
    )
    assert generate_answers(model, tiny_tokenizer, PROMPTS, 7) == [" ".join(answer) for answer in answers]
    assert not recwarn.list


@pytest.mark.parametrize("batch_size", [1, 5])
def test_an_answer_ends_at_the_eos_and_is_not_padded(model, tiny_tokenizer, answers, batch_size):
    eos = [answers[0][2], answers[1][4]]
    model.generation_config.eos_token_id = [int(word[1:]) for word in eos]
    expected = [answer[: min((answer.index(word) for word in eos if word in answer), default=7)] for answer in answers]
    assert len(expected[0]) <= 2
    found = generate_answers(model, tiny_tokenizer, PROMPTS, 7, batch_size=batch_size)
    assert found == [" ".join(answer) for answer in expected]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_an_answer_ends_before_its_first_stop_string(model, tiny_tokenizer, answers, batch_size):
    stop = [" ".join(answers[0][2:4]), answers[1][4]]  # the first is two tokens long
    texts = [" ".join(answer) for answer in answers]
    expected = [text[: min((text.index(end) for end in stop if end in text), default=len(text))] for text in texts]
    assert len(expected[0]) < len(texts[0])
    assert generate_answers(model, tiny_tokenizer, PROMPTS, 7, stop, batch_size=batch_size) == expected


def test_generation_itself_ends_at_a_stop_string(model, tiny_tokenizer, answers):
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    generate_answers(model, tiny_tokenizer, PROMPTS[:1], 7, [answers[0][2]])
    assert len(passes) == answers[0].index(answers[0][2]) + 1


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_stop_string_that_is_a_special_token(model, tiny_tokenizer, answers, batch_size):
    special = answers[0][2]
    tiny_tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(special, special=True)]})
    expected = [answer[: answer.index(special)] if special in answer else answer for answer in answers]
    found = generate_answers(model, tiny_tokenizer, PROMPTS, 7, [special], batch_size=batch_size)
    assert [text.split() for text in found] == expected


def test_special_tokens_are_left_out_of_the_text(model, tiny_tokenizer, answers):
    special = answers[0][2]
    tiny_tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(special, special=True)]})
    (found,) = generate_answers(model, tiny_tokenizer, PROMPTS[:1], 7)
    assert found.split() == [word for word in answers[0] if word != special]


def test_no_prompts(model, tiny_tokenizer):
    assert generate_answers(model, tiny_tokenizer, [], 7) == []


def test_prompts_longer_than_the_model(model, tiny_tokenizer):
    model.config.max_position_embeddings = 13
    assert len(generate_answers(model, tiny_tokenizer, PROMPTS, 6)) == 5  # 7 + 6
    with pytest.raises(BoschError, match="a prompt of 7 tokens and an answer of up to 7 exceed the 13 positions"):
        generate_answers(model, tiny_tokenizer, PROMPTS, 7)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "7"])
def test_numbers_that_are_none(model, tiny_tokenizer, number):
    with pytest.raises(BoschError, match="max_new_tokens must be an integer of at least 1, got"):
        generate_answers(model, tiny_tokenizer, PROMPTS, number)
    with pytest.raises(BoschError, match="batch_size must be an integer of at least 1, got"):
        generate_answers(model, tiny_tokenizer, PROMPTS, 7, batch_size=number)


def test_a_prompt_without_tokens(model, tiny_tokenizer):
    with pytest.raises(BoschError, match="prompt 1 has no tokens"):
        generate_answers(model, tiny_tokenizer, ["w1", ""], 7)


def test_quiet_when_piped_and_counted_on_a_terminal(model, tiny_tokenizer, capfd, monkeypatch):
    generate_answers(model, tiny_tokenizer, PROMPTS, 2)
    assert capfd.readouterr() == ("", "")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    generate_answers(model, tiny_tokenizer, PROMPTS, 2, batch_size=2)
    assert "5/5" in terminal.getvalue()

"""The boundary between prompt and answer, and the special tokens around them."""

import re

import pytest
from small_tokenizers import byte_level, merging_across, surround

from bosch.calibration import make_examples
from bosch.calibration.tokens import tokenize
from bosch.errors import BoschError

PLAIN = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[bot] {% endif %}"
)
CHAT_TEMPLATES = {"template with BOS": "{{ bos_token }}" + PLAIN, "template without BOS": PLAIN}
PREFIX = "The special magic number for {} mentioned in the provided text is"


def squeeze(text):
    return "".join(text.split())


def test_ids_are_those_of_the_whole_text_and_split_where_the_answer_begins(tokenizer):
    prompt, answer = "The sky is blue. " + PREFIX.format("green-sky"), "4830275"
    tokens = tokenize(tokenizer, prompt, answer)
    assert list(tokens.ids) == tokenizer(f"{prompt} {answer}")["input_ids"]
    scored = squeeze(tokenizer.decode(tokens.ids[tokens.answer_start :]))
    given = squeeze(tokenizer.decode(tokens.ids[: tokens.answer_start], skip_special_tokens=True))
    assert given + scored == squeeze(prompt + answer)
    # All of the answer is scored, but for digits that are in one token with the prompt's last letters.
    assert answer.endswith(scored)
    assert scored
    last_given = squeeze(tokenizer.decode([tokens.ids[tokens.answer_start - 1]]))
    assert scored == answer or re.fullmatch(r".*is\d+", last_given)


def test_a_space_token_of_its_own_is_not_scored():
    tokenizer = byte_level(split_digits=True)
    tokens = tokenize(tokenizer, "text is", "4830275")
    assert [tokenizer.decode([token]) for token in tokens.ids[tokens.answer_start - 1 :]] == [" ", *"4830275"]


def test_a_token_that_holds_part_of_the_prompt_is_never_scored():
    tokenizer = merging_across()
    prompt = PREFIX.format("green-sky")
    tokens = tokenize(tokenizer, prompt, "4830275")
    straddling = tokenizer.decode([tokens.ids[tokens.answer_start - 1]])
    assert straddling.endswith("is 4") or straddling.endswith("is 48"), "the tokenizer should merge across"
    assert tokenizer.decode(tokens.ids[tokens.answer_start :]) in ("830275", "30275")


def test_an_answer_swallowed_by_the_prompt_is_refused():
    with pytest.raises(BoschError, match="one token of the answer '4' and the text before it"):
        tokenize(merging_across(), PREFIX.format("green-sky"), "4")


def test_a_tokenizer_that_drops_characters_is_refused_for_its_shifted_offsets():
    with pytest.raises(BoschError, match=r"knows only \d+ of the prompt's 23 characters"):
        tokenize(merging_across(), "Caf\xe9 na\xefve, it is", "48302")


@pytest.mark.parametrize("surroundings", ["<s> $A", "<s> $A </s>"])
@pytest.mark.parametrize("chat", ["plain", *CHAT_TEMPLATES])
def test_bos_stands_once_and_first_and_nothing_follows_the_answer(bos_tokenizer, surroundings, chat):
    surround(bos_tokenizer, surroundings)
    bos_tokenizer.chat_template = CHAT_TEMPLATES.get(chat)
    (example,) = make_examples(
        bos_tokenizer, tasks=["niah_single_1"], lengths=[300], num_examples=1, seed=5, chat=chat != "plain"
    ).examples
    positions = [at for at, token in enumerate(example.input_ids) if token == bos_tokenizer.bos_token_id]
    assert positions == [0]
    assert bos_tokenizer.eos_token_id not in example.input_ids
    assert squeeze(bos_tokenizer.decode(example.input_ids[example.answer_start :])) == example.answer


def test_no_bos_where_the_tokenizer_adds_none(bos_tokenizer):
    surround(bos_tokenizer, "$A")
    (example,) = make_examples(bos_tokenizer, tasks=["niah_single_1"], lengths=[300], num_examples=1, seed=5).examples
    assert bos_tokenizer.bos_token_id not in example.input_ids


@pytest.mark.parametrize("chat", ["plain", *CHAT_TEMPLATES])
def test_the_text_sent_to_the_model_ends_with_the_answer_prefix(bos_tokenizer, chat):
    bos_tokenizer.chat_template = CHAT_TEMPLATES.get(chat)
    (example,) = make_examples(
        bos_tokenizer, tasks=["niah_single_1"], lengths=[300], num_examples=1, seed=5, chat=chat != "plain"
    ).examples
    assert example.prompt.endswith("mentioned in the provided text is")
    assert example.prompt.count("The special magic") == 1
    assert ("[bot] The special magic" in example.prompt) == (chat != "plain")
    sent = bos_tokenizer.decode(example.input_ids[: example.answer_start], skip_special_tokens=True)
    assert squeeze(sent) == squeeze(example.prompt.removeprefix("<s>"))


def test_chat_without_a_template_and_a_slow_tokenizer_are_refused(bos_tokenizer):
    ask = {"tasks": ["niah_single_1"], "lengths": [300], "num_examples": 1, "seed": 5}
    with pytest.raises(BoschError, match="no chat template"):
        make_examples(bos_tokenizer, **ask, chat=True)

    class SlowTokenizer:
        is_fast = False

    with pytest.raises(BoschError, match="SlowTokenizer cannot tell which characters"):
        make_examples(SlowTokenizer(), **ask)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.calibration.tokens import as_chat
from bosch.errors import BoschError
from bosch.evaluation.prompts import cut_middle, encode
from calibration.small_tokenizers import byte_level, metaspace, surround

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}> {{ message.content }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{% if enable_thinking is not defined or enable_thinking %}"
    "<think>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    """With a BOS before each text."""
    return metaspace()


@pytest.fixture(scope="module")
def chat_tokenizer():
    tokenizer = metaspace()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def test_bos_comes_once_in_plain_and_in_chat_prompts(chat_tokenizer):
    for prompt in ("The cat", as_chat(chat_tokenizer, "The cat")):
        ids = encode(chat_tokenizer, prompt)
        assert [index for index, token in enumerate(ids) if token == chat_tokenizer.bos_token_id] == [0]


def test_a_tokenizer_without_bos_adds_none():
    tokenizer = byte_level(split_digits=False)
    assert tokenizer.decode(encode(tokenizer, "The cat")) == "The cat"


def test_an_eos_that_the_tokenizer_appends_does_not_end_the_prompt():
    tokenizer = metaspace()
    surround(tokenizer, "<s> $A </s>")
    assert tokenizer("The cat")["input_ids"][-1] == tokenizer.eos_token_id
    assert encode(tokenizer, "The cat") == tokenizer("The cat")["input_ids"][:-1]
    assert encode(tokenizer, "The cat</s>")[-1] == tokenizer.eos_token_id  # the text's own stays


def test_chat_prompt_leaves_the_word_to_an_assistant_that_does_not_think(chat_tokenizer):
    assert as_chat(chat_tokenizer, "The cat") == "<s><user> The cat <assistant>"


def test_chat_without_template(tokenizer):
    with pytest.raises(BoschError, match="the tokenizer has no chat template"):
        as_chat(tokenizer, "The cat")


def test_a_prompt_that_fits_is_left_as_it_is(tokenizer):
    prompt = "The  cat\nsat on the mat."  # this tokenizer does not give the newline back
    assert cut_middle(tokenizer, prompt, len(encode(tokenizer, prompt))) == prompt


def test_the_middle_goes():
    tokenizer = byte_level(split_digits=True)
    prompt = "0123456789" * 3  # one token a digit
    assert cut_middle(tokenizer, prompt, 14) == "0123456" + "3456789"
    assert cut_middle(tokenizer, prompt, 13) == "012345" + "456789"  # half of an odd limit, twice, as LongBench does
    assert cut_middle(tokenizer, prompt, 29) == prompt[:14] + prompt[-14:]
    assert cut_middle(tokenizer, prompt, 30) == prompt


def test_a_prompt_that_only_the_chat_template_makes_too_long_is_cut_not_repeated():
    tokenizer = byte_level(split_digits=True)
    cut = cut_middle(tokenizer, "0123456789", 14, lambda text: f"aaaaaa{text}")  # 6 tokens before 10
    assert cut == "aaaaaa01236789"


def test_the_bos_is_one_of_the_first_half_and_is_not_written_out(tokenizer):
    prompt = " ".join("abcdefghijk")
    ids = encode(tokenizer, prompt)
    cut = cut_middle(tokenizer, prompt, 8)
    assert cut == tokenizer.decode(ids[1:4]) + tokenizer.decode(ids[-4:])
    assert "<s>" not in cut


@given(
    words=st.lists(st.sampled_from(["magic", "number", "7", "ü", "长文", "\n", "special"]), min_size=1, max_size=60),
    limit=st.integers(40, 90),
    chat=st.booleans(),
)
def test_what_is_sent_never_exceeds_the_limit(words, limit, chat):
    tokenizer = TOKENIZER
    prompt = " ".join(words)
    render = (lambda text: as_chat(tokenizer, text)) if chat else (lambda text: text)
    sent = cut_middle(tokenizer, prompt, limit, render)
    num_tokens = len(encode(tokenizer, sent))
    assert num_tokens <= limit
    if len(encode(tokenizer, render(prompt))) > limit:
        assert num_tokens >= limit // 2  # and what fits is kept


def test_a_limit_that_leaves_nothing(chat_tokenizer):
    with pytest.raises(BoschError, match="a limit of 3 tokens leaves nothing of the prompt"):
        cut_middle(chat_tokenizer, "The cat sat", 3, lambda text: as_chat(chat_tokenizer, text))
    with pytest.raises(BoschError, match="a limit of 0 tokens leaves nothing of the prompt"):
        cut_middle(chat_tokenizer, "The cat sat", 0)


TOKENIZER = byte_level(split_digits=False)
TOKENIZER.chat_template = TEMPLATE

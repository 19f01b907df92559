import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from bosch.calibration.haystack import shipped_prose
from bosch.errors import BoschError
from bosch.selectors.static.passkeys import ORDINALS, PasskeyPrompt, make_passkey_prompt
from tiny_checkpoint import TINY


def byte_level() -> PreTrainedTokenizerFast:
    """A space is part of the token that follows it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(shipped_prose()[:20_000].splitlines(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


TOKENIZERS = {"byte level": byte_level(), "words without spaces": AutoTokenizer.from_pretrained(TINY)}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]


def keys_of(prompt: PasskeyPrompt, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The keys as the text says them: what follows "key is:"."""
    text = tokenizer.decode(prompt.input_ids).replace(" :", ":").lower()
    return [part.split(".")[0].strip() for part in text.split("key is:")[1:]]


@settings(max_examples=12)
@given(length=st.integers(180, 900), name=st.text(max_size=3), kind=st.sampled_from(list(TOKENIZERS)))
def test_prompts_fill_their_length_and_name_every_key_twice(length: int, name: str, kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    prompt = make_passkey_prompt(tokenizer, length, name)
    assert length - 20 < len(prompt.input_ids) <= length
    text = " ".join(tokenizer.decode(prompt.input_ids).lower().split())
    keys = keys_of(prompt, tokenizer)
    assert 1 <= len(keys) <= len(ORDINALS)
    for key in keys:
        assert text.count(key) == 2
        words = key.split(" ")
        assert len(words) == 8
        pairs = ["-".join(words[first : first + 2]) for first in range(0, 8, 2)]
        assert all(zlib.crc32(pair.encode()) % 2 == 0 for pair in pairs), "words of the calibration split"


def test_what_is_predicted_is_the_keys(tokenizer: PreTrainedTokenizerFast) -> None:
    """Position t predicts token t + 1: neither the question nor the needle is in it."""
    prompt = make_passkey_prompt(tokenizer, 600, "seed")
    predicted = tokenizer.decode([prompt.input_ids[position + 1] for position in prompt.predicting])
    keys = keys_of(prompt, tokenizer)
    assert len(keys) > 1
    assert predicted.lower().split() == " ".join(keys).split()
    gaps = [later - earlier for earlier, later in zip(prompt.predicting, prompt.predicting[1:], strict=False)]
    assert sum(gap > 1 for gap in gaps) == len(keys) - 1
    assert min(gaps) == 1


def test_longer_prompts_hold_more_keys_up_to_ten(tokenizer: PreTrainedTokenizerFast) -> None:
    """Needles and questions together take at most half of the tokens, unless there is but one key."""
    lengths = (130, 500, 1000, 4000, 5000)
    prompts = [make_passkey_prompt(tokenizer, length, "seed") for length in lengths]
    counts = [len(keys_of(prompt, tokenizer)) for prompt in prompts]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert 1 < counts[1] < 10
    assert counts[-2:] == [10, 10]


def test_the_name_is_the_seed(tokenizer: PreTrainedTokenizerFast) -> None:
    first = make_passkey_prompt(tokenizer, 300, "a")
    assert make_passkey_prompt(tokenizer, 300, "a") == first
    assert not set(keys_of(make_passkey_prompt(tokenizer, 300, "b"), tokenizer)) & set(keys_of(first, tokenizer))


def test_a_length_that_holds_no_key_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(BoschError, match="length 30 is too short for a passkey prompt: one key alone takes"):
        make_passkey_prompt(tokenizer, 30, "seed")

import pytest
from small_tokenizers import TOKENIZERS, metaspace, word_level
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="session", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


@pytest.fixture(scope="session")
def word_tokenizer() -> PreTrainedTokenizerFast:
    return word_level()


@pytest.fixture
def bos_tokenizer() -> PreTrainedTokenizerFast:
    return metaspace()

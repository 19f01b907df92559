import pytest
from small_tokenizers import TOKENIZERS, metaspace
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="session", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


@pytest.fixture
def bos_tokenizer() -> PreTrainedTokenizerFast:
    return metaspace()

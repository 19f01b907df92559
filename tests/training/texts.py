"""A tokenizer of one token a word, and texts for it."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

EOS = 61


def make_tokenizer(eos_token: str | None = "<eos>") -> PreTrainedTokenizerFast:
    """w0 ... w60 are tokens 0 ... 60, <eos> is 61 and <unk> 62."""
    vocabulary = {**{f"w{index}": index for index in range(61)}, "<eos>": EOS, "<unk>": 62}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token=eos_token)


def text(*ids: int) -> str:
    return " ".join(f"w{index}" for index in ids)


def write_json_lines(path: Path, *texts: str, field: str = "text") -> Path:
    path.write_text("".join(json.dumps({"id": 7, field: one}) + "\n" for one in texts))
    return path

"""A small random model, and the options of a search that takes it a second or two."""

import re
import string
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from bosch.calibration import TASKS
from bosch.calibration.haystack import NOISE, shipped_prose
from bosch.calibration.items import words

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}

OPTIONS = {
    "ratio": 0.5,
    "window": 4,
    "tasks": "niah_single_1,niah_multikey_1",
    "lengths": 160,
    "examples": 4,
    "heldout": 3,
    "budget": 12,
    "dtype": "float32",
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words, digits and signs of the tasks, a token each."""
    tokenizer = Tokenizer(models.WordLevel({}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\d|\w+|[^\w\s]"), "removed", invert=True)
    wording = [task.question("", "") + task.answer_prefix("") for task in TASKS.values()]
    corpus = [shipped_prose()[:50_000], *NOISE, *words("adjectives"), *words("nouns"), *wording, *string.digits]
    tokenizer.train_from_iterator(corpus, trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def squeezed(text: str) -> str:
    """A text whose tables are not aligned: one space where there were more."""
    return re.sub(r" +", " ", text)


def snapshot(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory, with its time and content."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): (file.stat().st_mtime_ns, file.read_bytes()) for file in files}

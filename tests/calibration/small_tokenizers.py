"""Small tokenizers of the kinds that differ at the boundary between prompt and answer."""

import string

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from bosch.calibration.haystack import NOISE, shipped_prose
from bosch.calibration.items import words
from bosch.calibration.tasks import TASKS

CORPUS = [
    *shipped_prose()[:30_000].splitlines(),
    *NOISE,
    *(task.question("", "green-sky") for task in TASKS.values()),
    *(f"{TASKS['niah_single_1'].answer_prefix('green-sky')} {number}" for number in range(10, 100)),
]


def wrap(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special.values()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def byte_level(*, split_digits: bool) -> PreTrainedTokenizerFast:
    """GPT-2's kind: " 12" is one token that holds the space; with split digits the space is a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if split_digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=level.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return wrap(tokenizer)


def metaspace(*, prefix: bool = True) -> PreTrainedTokenizerFast:
    """SentencePiece's kind, with a BOS before the text: "▁12" is one token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace("\n", " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if prefix else "never")
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>"], initial_alphabet=list(string.printable), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    wrapped = wrap(tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    surround(wrapped, "<s> $A")
    return wrapped


def merging_across() -> PreTrainedTokenizerFast:
    """A BPE without a pre-tokenizer that has learnt tokens such as "text is 4", across every boundary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.Fuse()
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=list(string.printable))
    tokenizer.train_from_iterator(CORPUS[-100:] * 3 + CORPUS[:100], trainer)
    return wrap(tokenizer)


def word_level() -> PreTrainedTokenizerFast:
    """Words, digits and marks of a closed vocabulary; white space is no token at all."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\d|\w+|[^\w\s]"), "removed", invert=True)
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    corpus = [*CORPUS, "0 1 2 3 4 5 6 7 8 9 numbers uuids", *words("adjectives"), *words("nouns")]
    tokenizer.train_from_iterator(corpus, trainer)
    return wrap(tokenizer, unk_token="<unk>")


def surround(tokenizer: PreTrainedTokenizerFast, template: str) -> None:
    """Let the tokenizer put special tokens around a text, as in "<s> $A </s>"."""
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in template.split() if token != "$A"]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)


TOKENIZERS = {
    "byte-level": lambda: byte_level(split_digits=False),
    "byte-level, split digits": lambda: byte_level(split_digits=True),
    "metaspace": metaspace,
    "metaspace without prefix": lambda: metaspace(prefix=False),
    "merging across": merging_across,
    "word level": word_level,
}

"""Examples from a user's own file: pairs of prompt and answer, or a long text of which later tokens are scored."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.calibration.examples import Example, ExampleSet
from bosch.calibration.items import SPLITS, Split
from bosch.calibration.tokens import as_chat, check_tokenizer, tokenize
from bosch.common.files import is_text, read_json_lines, read_text, take_fields
from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SCORED_SHARE = 4
"""Of a piece of text the last 1/4 of the tokens is scored: each of them has at least 3/4 of the piece before it."""


def own_examples(
    tokenizer: "PreTrainedTokenizerBase",
    path: Path,
    *,
    lengths: Sequence[int],
    num_examples: int,
    split: Split,
    chat: bool = False,
) -> ExampleSet:
    """Examples from a file: every second one for calibration, the others held out.

    Args:
        tokenizer: the model's; a fast one.
        path: `*.jsonl`, each line an object with the texts `prompt` and `answer`, used whole; or any UTF-8 text, which
            is cut into pieces one after the other.
        lengths: tokens of the pieces of a text, in turn; pairs have their own.
        num_examples: in all, at least 1.
        split: "calibration" or "heldout".
        chat: send the prompts through the tokenizer's chat template.

    Raises:
        BoschError: the file cannot be read, is not of this form, or has too little in it; the tokenizer is not fast or
            has no chat template where one is needed.
    """
    check_tokenizer(tokenizer, chat)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        origin = 'expected a file of lines like {"prompt": "...", "answer": "..."}'
        found = pair_examples(tokenizer, read_json_lines(path, _read_pair, origin=origin), name=path.stem, chat=chat)
    elif path.suffix.lower() == ".json":
        raise BoschError(f"{path} is neither JSON lines nor a text; expected one object a line, and the ending .jsonl")
    else:
        found = _pieces(tokenizer, path.stem, read_text(path, "the examples"), lengths, 2 * num_examples)
    chosen = found[SPLITS[split] :: 2][:num_examples]
    if len(chosen) < num_examples:
        raise BoschError(
            f"{path} gives {len(chosen)} {split} examples, expected {num_examples}: every second example of a file is "
            "held out; ask for fewer or shorter ones, or give a longer file"
        )
    return ExampleSet(tuple(chosen), {"file": str(path), "split": split, "chat": chat})


def pair_examples(
    tokenizer: "PreTrainedTokenizerBase",
    pairs: Iterable[tuple[str, str]],
    *,
    name: str = "own",
    chat: bool = False,
) -> list[Example]:
    """One example for each pair of prompt and answer; of pairs with the same prompt the first, so that no prompt is in
    both splits.

    Args:
        tokenizer: the model's; a fast one.
        pairs: texts, none of them empty.
        name: what the task is called.
        chat: send the prompts through the tokenizer's chat template.

    Raises:
        BoschError: a pair is not of this form; the tokenizer is not fast or has no chat template where one is needed.
    """
    check_tokenizer(tokenizer, chat)
    examples: dict[str, Example] = {}
    for number, pair in enumerate(pairs, start=1):
        texts = list(pair) if isinstance(pair, list | tuple) else []
        if len(texts) != 2 or not all(is_text(text) and text for text in texts):
            raise BoschError(f"example {number} must be a prompt and an answer, both texts, got {pair!r:.60}")
        prompt, answer = texts
        if prompt not in examples:
            sent = as_chat(tokenizer, prompt) if chat else prompt
            tokens = tokenize(tokenizer, sent, answer, separator="" if sent[-1].isspace() else " ")
            examples[prompt] = _example(tokens.ids, tokens.answer_start, name, sent, answer)
    return list(examples.values())


def _read_pair(data: Any) -> tuple[str, str]:
    fields = take_fields(data, {"prompt": str, "answer": str})
    if not fields["prompt"] or not fields["answer"]:
        raise BoschError("prompt and answer must not be empty")
    return fields["prompt"], fields["answer"]


def _pieces(
    tokenizer: "PreTrainedTokenizerBase", name: str, text: str, lengths: Sequence[int], most: int
) -> list[Example]:
    """Pieces of the lengths in turn, each twice: one for either split."""
    ids = tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    first = [token for token in tokenizer("a")["input_ids"][:1] if token == tokenizer.bos_token_id]
    examples: list[Example] = []
    start = 0
    while len(examples) < most:
        length = lengths[len(examples) // 2 % len(lengths)]
        piece = tuple(first + ids[start : start + length - len(first)])
        if len(piece) < length:
            break
        start += length - len(first)
        answer_start = length - length // SCORED_SHARE
        prompt, answer = (str(tokenizer.decode(list(part))) for part in (piece[:answer_start], piece[answer_start:]))
        examples.append(_example(piece, answer_start, name, prompt, answer))
    return examples


def _example(ids: tuple[int, ...], answer_start: int, name: str, prompt: str, answer: str) -> Example:
    """The whole prompt counts as what is to be found."""
    return Example(ids, answer_start, 0, name, len(ids), 0.0, prompt, answer)

"""Examples from a user's own file: pairs of prompt and answer, or a long text of which later tokens are scored."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bosch.calibration.examples import Example, ExampleSet
from bosch.calibration.items import SPLITS, Split
from bosch.calibration.tokens import check_tokenizer, tokenize
from bosch.errors import BoschError
from bosch.files import read_text

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
    text = read_text(path, "the examples")
    if path.suffix == ".jsonl":
        found = _pairs(tokenizer, path, text, chat)
    else:
        found = _pieces(tokenizer, path.stem, text, lengths, 2 * num_examples)
    chosen = found[SPLITS[split] :: 2][:num_examples]
    if len(chosen) < num_examples:
        raise BoschError(
            f"{path} gives {len(chosen)} {split} examples, expected {num_examples}: every second example of a file is "
            "held out; ask for fewer or shorter ones, or give a longer file"
        )
    return ExampleSet(tuple(chosen), {"file": str(path), "split": split, "chat": chat})


def _pairs(tokenizer: "PreTrainedTokenizerBase", path: Path, text: str, chat: bool) -> list[Example]:
    """One example a line; of lines with the same prompt the first, so that no prompt is in both splits."""
    examples: dict[str, Example] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            pair = json.loads(line)
            prompt, answer = pair["prompt"], pair["answer"]
        except (ValueError, TypeError, KeyError, RecursionError):
            prompt = answer = None
        if not isinstance(prompt, str) or not isinstance(answer, str) or not prompt or not answer:
            raise BoschError(
                f'{path}, line {number}: expected an object like {{"prompt": "...", "answer": "..."}}, got {line:.60}'
            )
        if prompt not in examples:
            examples[prompt] = _pair(tokenizer, path.stem, prompt, answer, chat)
    return list(examples.values())


def _pair(tokenizer: "PreTrainedTokenizerBase", name: str, prompt: str, answer: str, chat: bool) -> Example:
    if chat:
        messages = [{"role": "user", "content": prompt}]
        prompt = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    tokens = tokenize(tokenizer, prompt, answer, separator="" if prompt[-1].isspace() else " ")
    return _example(tokens.ids, tokens.answer_start, name, prompt, answer)


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

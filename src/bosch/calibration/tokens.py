"""From the text of a prompt and its answer to token ids, with the boundary between the two where the model sees it."""

import bisect
import dataclasses
from typing import TYPE_CHECKING

from bosch.calibration.tasks import NeedleTask
from bosch.errors import BoschError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Tokens:
    """A prompt and its answer as one sequence of tokens.

    Args:
        ids: the tokens of prompt and answer together, a leading BOS included where the tokenizer has one.
        ends: for each token, the position in the text right after its last character.
        answer_start: index of the first token that is scored.
    """

    ids: tuple[int, ...]
    ends: tuple[int, ...]
    answer_start: int

    def index_at(self, position: int) -> int:
        """Index of the token that holds the character at a position of the text."""
        return bisect.bisect_right(self.ends, position)


def check_tokenizer(tokenizer: "PreTrainedTokenizerBase", chat: bool) -> None:
    """Refuse a tokenizer that examples cannot be made with.

    Raises:
        BoschError: it cannot say which characters a token holds, or lacks the chat template that is asked for.
    """
    if not tokenizer.is_fast:
        kind = type(tokenizer).__name__
        raise BoschError(f"{kind} cannot tell which characters its tokens hold; give a fast tokenizer instead")
    if chat and not tokenizer.chat_template:
        raise BoschError("chat prompts were asked for, but the tokenizer has no chat template; make plain ones instead")


def render(tokenizer: "PreTrainedTokenizerBase", task: NeedleTask, context: str, key: str, chat: bool) -> str:
    """The prompt as the model is sent it; with and without a chat template it ends with the answer prefix."""
    question, prefix = task.question(context, key), task.answer_prefix(key)
    if not chat:
        return f"{question} {prefix}"
    return f"{as_chat(tokenizer, question)}{prefix}"


def as_chat(tokenizer: "PreTrainedTokenizerBase", message: str) -> str:
    """A text as a user's only message, up to where the assistant begins to answer; a thought that the template opens is
    closed, as an answer of a few dozen tokens has no room for one. The one rendering for calibration, evaluation and
    training.

    Raises:
        BoschError: the tokenizer has no chat template, or one whose thought cannot be closed.
    """
    check_tokenizer(tokenizer, chat=True)
    messages = [{"role": "user", "content": message}]
    # Templates that know no such option pass over it.
    rendered = str(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    )
    opened, closed = rendered.rfind("<think>"), rendered.rfind("</think>")
    if opened > closed and not rendered[opened:].removeprefix("<think>").strip():
        return f"{rendered.rstrip()}\n\n</think>\n\n"
    return rendered


def tokenize(tokenizer: "PreTrainedTokenizerBase", prompt: str, answer: str, separator: str = " ") -> Tokens:
    """Tokenize prompt, separator and answer as one text, and find where the answer begins.

    Tokenizers differ in what becomes of the space: merged with the answer's first letters, a token of its own, or
    nothing at all. So the text is tokenized whole, and the answer's tokens are those that hold at least one character
    of the answer and none of the prompt. A token that is the space alone says nothing about the needle and counts as
    prompt; a token that reaches from the prompt into the answer is never scored.

    Raises:
        BoschError: no token belongs to the answer alone, or the tokenizer drops characters of the text.
    """
    text = f"{prompt}{separator}{answer}"
    # A chat template has often written the BOS into the text already; two of them shift every attention sink.
    add_special_tokens = not (tokenizer.bos_token and text.startswith(tokenizer.bos_token))
    encoding = tokenizer(
        text, add_special_tokens=add_special_tokens, return_offsets_mapping=True, truncation=False, verbose=False
    )
    offsets = encoding["offset_mapping"]
    # Special tokens that are appended, such as EOS, hold no characters: the sequence ends with the answer.
    num_tokens = max(index for index, (_, end) in enumerate(offsets) if end) + 1
    starts, ends = zip(*offsets[:num_tokens], strict=True)
    if ends[-1] != len(text):
        raise BoschError(
            f"the tokenizer knows only {ends[-1]} of the prompt's {len(text)} characters and drops the others, so that "
            "the answer's tokens cannot be found; give it a haystack text in its own alphabet"
        )
    answer_start = bisect.bisect_right(ends, len(prompt) + len(separator))
    if answer_start < num_tokens and starts[answer_start] < len(prompt):
        answer_start += 1
    if answer_start == num_tokens:
        raise BoschError(f"the tokenizer makes one token of the answer {answer!r} and the text before it")
    return Tokens(tuple(encoding["input_ids"][:num_tokens]), ends, answer_start)

"""Documents that hide a needle, ask for it and answer: made of the calibration split's keys and values, which no
held-out example shares."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bosch.calibration import make_examples
from bosch.training.sources import Document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROUND = 48
"""Documents of one round, each balanced over tasks and lengths."""

ROUNDS_OF_A_SEED = 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeedleSource:
    """Needle documents without end.

    Args:
        tasks: names out of `bosch.calibration.TASKS`.
        lengths: of the documents, in tokens, their answers included.
        haystack: the text to hide needles in; None = the text that the package ships.
        chat: ask through the tokenizer's chat template.
        seed: of all that is drawn.
        weight: its share of a mixture, in tokens, in proportion to the other sources' weights.
    """

    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    haystack: str | None = None
    chat: bool = False
    seed: int = 0
    weight: float = 1.0
    location: str = "needles"

    def pinned(self) -> "NeedleSource":
        """Itself: it reads nothing."""
        return self

    def identity(self) -> dict[str, Any]:
        """All that is drawn depends on; of the haystack its hash."""
        haystack = self.haystack and hashlib.sha256(self.haystack.encode()).hexdigest()
        return {**dataclasses.asdict(self), "haystack": haystack}

    def documents(self, tokenizer: "PreTrainedTokenizerBase") -> Iterator[Document]:
        """Prompt and answer, as a model is asked, and an end.

        Raises:
            BoschError: a task is unknown, a length too short for it, or the tokenizer cannot be used, see
                `make_examples`.
        """
        for number in itertools.count(self.seed * ROUNDS_OF_A_SEED):
            examples = make_examples(
                tokenizer,
                tasks=self.tasks,
                lengths=self.lengths,
                num_examples=ROUND,
                seed=number,
                split="calibration",
                haystack_text=self.haystack,
                chat=self.chat,
            )
            for example in examples:
                yield Document([*example.input_ids, tokenizer.eos_token_id], example.answer_start)

"""RULER's needle-in-a-haystack tasks as data, and the wording of the benchmark (Hsieh et al., 2404.06654, Appendix B).

The wording is the benchmark's, letter by letter, so that scores can be compared with it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal


@dataclasses.dataclass(frozen=True)
class NeedleTask:
    """One variant of the needle-in-a-haystack task.

    Args:
        name: RULER's name of it.
        haystack: what the needles lie in: repeated noise sentences, prose, or lines that look like needles.
        key: the kind of key that is asked for.
        value: the kind of value that answers.
        num_keys: needles in the text, of which one is asked for. In a haystack of needle lines every line is one more.
    """

    name: str
    haystack: Literal["noise", "prose", "needles"]
    key: Literal["words", "numbers", "uuids"]
    value: Literal["words", "numbers", "uuids"]
    num_keys: int = 1

    def needle(self, key: str, value: str) -> str:
        """The sentence to be found."""
        return f"One of the special magic {self.value} for {key} is: {value}."

    def question(self, context: str, key: str) -> str:
        """The whole prompt without its answer prefix: instruction, text, question."""
        thing = self.value.removesuffix("s")
        return (
            f"A special magic {thing} is hidden within the following text. Make sure to memorize it. "
            f"I will quiz you about the {thing} afterwards.\n{context}\n"
            f"What is the special magic {thing} for {key} mentioned in the provided text?"
        )

    def answer_prefix(self, key: str) -> str:
        """What stands between the question and the answer; a model that knows the value goes on with it."""
        return f"The special magic {self.value.removesuffix('s')} for {key} mentioned in the provided text is"


TASKS: Mapping[str, NeedleTask] = {
    task.name: task
    for task in (
        NeedleTask("niah_single_1", "noise", "words", "numbers"),
        NeedleTask("niah_single_2", "prose", "words", "numbers"),
        NeedleTask("niah_single_3", "prose", "words", "uuids"),
        NeedleTask("niah_multikey_1", "prose", "words", "numbers", num_keys=4),
        NeedleTask("niah_multikey_2", "needles", "words", "numbers"),
        NeedleTask("niah_multikey_3", "needles", "uuids", "uuids"),
    )
}

DEFAULT_TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1")

"""One example before its length is fixed: its needles, and its text for any number of haystack units."""

import itertools
import random
from collections.abc import Iterator, Sequence

from bosch.calibration.haystack import NOISE, Segment, cut, insert, prose_segments
from bosch.calibration.items import Split, draw_items
from bosch.calibration.tasks import NeedleTask

SEPARATORS = {"noise": "\n", "prose": " ", "needles": "\n"}
"""What stands between two segments of a haystack."""


class Draft:
    """Everything that was drawn for one example; the same name draws the same.

    Args:
        name: the seed, as text: the beginning of the names of all its random streams.
        task: what kind of example.
        split: whose keys and values.
        depth: of the needle that is asked for, in [0, 1]; other needles lie anywhere.
        sentences: prose to hide needles in.
    """

    def __init__(self, name: str, task: NeedleTask, split: Split, depth: float, sentences: Sequence[Segment]) -> None:
        self._name, self._task, self._split, self._sentences = name, task, split, sentences
        pairs = list(itertools.islice(self._pairs(), task.num_keys))
        stream = self._stream("depths")
        self.key, self.answer = pairs[0]
        self._needles = [task.needle(key, value) for key, value in pairs]
        self._depths = [depth, *(stream.random() for _ in pairs[1:])]

    @property
    def needle(self) -> str:
        """The sentence that holds the answer."""
        return self._needles[0]

    def context(self, num_units: int) -> str:
        """The haystack of so many units, with the needles in it."""
        texts = insert(cut(self._segments(), num_units), self._needles, self._depths)
        return SEPARATORS[self._task.haystack].join(texts)

    def _stream(self, part: str) -> random.Random:
        return random.Random(f"{self._name}/{part}")

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Keys and values: those of the needles first, then those of a haystack's lines."""
        keys = draw_items(self._task.key, self._split, self._stream("keys"))
        return zip(keys, draw_items(self._task.value, self._split, self._stream("values")), strict=False)

    def _segments(self) -> Iterator[Segment]:
        """The haystack, from its start, the same at each call: a longer context begins with the shorter one."""
        if self._task.haystack == "noise":
            return itertools.repeat(NOISE)
        if self._task.haystack == "prose":
            return prose_segments(self._sentences, self._stream("start").randrange(len(self._sentences)))
        others = itertools.islice(self._pairs(), self._task.num_keys, None)
        return ((self._task.needle(key, value),) for key, value in others)

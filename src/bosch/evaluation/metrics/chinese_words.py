"""Chinese text cut into words, by the library that LongBench's scorer uses."""

import functools
from typing import Any

from bosch.extras import import_extra


def chinese_words(text: str) -> list[str]:
    """The words of a text in order, as jieba's default mode cuts them; together they are the text again.

    Args:
        text: any text; runs of Latin letters and digits stay whole, white space and marks are words of their own.

    Raises:
        BoschError: jieba is not installed.
    """
    return _segmenter().lcut(text)


@functools.cache
def _segmenter() -> Any:
    """A segmenter with jieba's own dictionary alone, whatever words others have added to the shared one."""
    segmenter = import_extra("jieba", "cutting Chinese into words", "eval").Tokenizer()
    # Left to itself, jieba reads its dictionary from a marshal file in the temporary directory, which is everybody's.
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter

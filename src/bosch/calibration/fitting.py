"""Fitting a text to a number of tokens, in few looks at the tokenizer."""

from collections.abc import Callable


def largest_fit(num_tokens: Callable[[int], int], length: int) -> int:
    """The largest number of units that fits: `num_tokens(n) <= length < num_tokens(n + 1)`.

    Units take about the same number of tokens each, so the search interpolates: some six looks at any length, where
    halving would take fifteen. Both neighbours are measured in the end, so that the answer is exact.

    Args:
        num_tokens: tokens of a text with so many units, growing with them by at least one each.
        length: tokens that may be used; `num_tokens(0)` must fit.
    """
    fits, used = 0, num_tokens(0)
    assert used <= length
    too_many = length + 1
    tokens_per_unit = float("inf")
    while too_many - fits > 1:
        step = min(max(int((length - used) / tokens_per_unit), 1), too_many - fits - 1)
        tokens = num_tokens(fits + step)
        tokens_per_unit = max((tokens - used) / step, 1e-3)  # a unit that merged away must not divide by zero
        if tokens <= length:
            fits, used = fits + step, tokens
        else:
            too_many = fits + step
    return fits

"""How sure an accuracy is that was measured on few examples."""

import math

Z = 1.959963984540054
"""Two-sided 95 % of a normal distribution."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson, 1927): also right near 0 and 1, where a share +- its standard error is
    not.

    Args:
        share: the share seen, in [0, 1].
        count: of how many.
    """
    centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    return max(0.0, centre - half), min(1.0, centre + half)

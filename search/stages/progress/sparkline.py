"""A curve in one line of text."""

from collections.abc import Sequence

SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` of ``values`` as blocks, from the least to the greatest of these.

    >>> sparkline([0.1, 0.2, 0.3, 0.1], 3)
    '▄█▁'
    """
    shown = values[-width:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = (high - low) or 1.0
    return "".join(SPARKS[int((value - low) / span * (len(SPARKS) - 1))] for value in shown)

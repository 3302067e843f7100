"""Several tests at once: Holm's correction."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """``p_values`` corrected for their number, in their own order (Holm 1979).

    The i-th smallest of m becomes the largest of (m − j + 1) · p_(j) over j ≤ i, and at most 1. Rejecting what is
    then at most 5 % wrongly rejects any true hypothesis at all in at most 5 % of tables, however they depend.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=lambda position: p_values[position])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        corrected[position] = largest
    return corrected

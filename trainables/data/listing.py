"""Long lists in sentences, cut."""

from collections.abc import Sequence

SHOWN = 20


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """The names one after the other; beyond twenty, how many more there are."""
    rest = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return separator.join([*names[:SHOWN], *rest])

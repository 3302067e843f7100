"""Long lists in sentences, cut."""

from collections.abc import Sequence

SHOWN = 20


def listed(names: Sequence[str], separator: str = ", ", shown: int = SHOWN) -> str:
    """The names one after the other; beyond those ``shown``, how many more there are."""
    rest = [f"and {len(names) - shown:,} more"] if len(names) > shown else []
    return separator.join([*names[:shown], *rest])

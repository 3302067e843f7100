"""Long lists in sentences, cut."""

from collections.abc import Sequence

SHOWN = 20


def listed(names: Sequence[str], separator: str = ", ", shown: int = SHOWN) -> str:
    """The names one after the other; beyond those ``shown``, how many more there are.

    File names may hold line breaks and a terminal's commands, which are shown as Python writes them.
    """
    shown_names = [name if name.isprintable() else repr(name)[1:-1] for name in names[:shown]]
    rest = [f"and {len(names) - shown:,} more"] if len(names) > shown else []
    return separator.join([*shown_names, *rest])

"""Where two configurations differ."""

from collections.abc import Iterator
from typing import Any


def differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each key, such as ``training.lr``, at which ``before`` and ``after`` differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for inner in dict.fromkeys((*before, *after)):
            yield from differences(before.get(inner), after.get(inner), f"{key}.{inner}" if key else str(inner))
    elif before != after:
        yield key, before, after

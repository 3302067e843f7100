"""The entries of a file: what stands at a path of keys, and the file without it."""

from collections.abc import Iterator, Mapping
from typing import Any

KeyPath = tuple[int | str, ...]
"""The keys, and in lists the indices, that lead to an entry."""


def existing(content: Any, path: KeyPath) -> KeyPath:
    """As much of ``path`` as leads to something in ``content``: pydantic adds which of several forms it tried."""
    for length, key in enumerate(path):
        if not _has(content, key):
            return path[:length]
        content = content[key]
    return path


def _has(content: Any, key: int | str) -> bool:
    if isinstance(content, Mapping):
        return key in content
    return isinstance(content, list) and isinstance(key, int) and key < len(content)


def holds(content: Any, path: KeyPath) -> bool:
    return existing(content, path) == path


def entry_at(content: Any, path: KeyPath) -> Any:
    for key in path:
        content = content[key]
    return content


def without(content: Any, path: KeyPath) -> Any:
    """``content`` without the entry at ``path``, nor a list that would be empty without it."""
    key, *rest = path
    if not _has(content, key):  # left out already, with what held it
        return content
    inner = without(content[key], tuple(rest)) if rest else None
    emptied = not rest or (isinstance(content[key], list) and not inner)
    if isinstance(content, list):
        assert isinstance(key, int)
        return [*content[:key], *([] if emptied else [inner]), *content[key + 1 :]]
    return {name: inner if name == key else value for name, value in content.items() if name != key or not emptied}


def dotted(path: KeyPath) -> str:
    """``path`` as people write it; what stands in a list is spoken of under the list's key."""
    return ".".join(str(key) for key in (path[:-1] if path and isinstance(path[-1], int) else path))


def leaves(content: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of ``content`` that is no mapping and no list, with the keys that lead to it."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from leaves(value, (*path, key))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from leaves(value, (*path, index))
    else:
        yield path, content

"""Items of any kind as bytes in an image store, and their digests. Nothing in the bytes is ever executed.

An item is a text, bytes, a number, True, False, None, a path, a NumPy array of numbers, or a list, tuple or mapping
(with texts as keys) of such items.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

KINDS = "a text, bytes, a number, a path, a NumPy array of numbers, or a list or mapping of these"
LENGTH_BYTES = 8
"""Bytes of the length of the JSON at the beginning."""


def item_bytes(item: object) -> bytes:
    """Return ``item`` as bytes: a JSON that describes it, and the content of its arrays and bytes.

    Raises:
        ValueError: it is of another kind.
    """
    blocks: list[bytes] = []

    def kept(content: bytes, **entry: Any) -> dict[str, Any]:
        blocks.append(content)
        return {**entry, "length": len(content)}

    text = json.dumps(_described(item, kept)).encode()
    return b"".join((len(text).to_bytes(LENGTH_BYTES, "little"), text, *blocks))


def item_of(content: bytes) -> Any:
    """Return the item whose bytes :func:`item_bytes` returned."""
    end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")

    def built(entry: Any) -> Any:
        nonlocal end
        if not isinstance(entry, dict):
            return entry
        kind, value = entry["kind"], entry.get("value", ())
        if kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[kind](built(part) for part in value)
        if kind == "mapping":
            return {key: built(part) for key, part in value}
        if kind == "path":
            return Path(value)
        block = content[end : end + entry["length"]]
        end += entry["length"]
        if kind == "bytes":
            return block
        return np.frombuffer(block, dtype=entry["dtype"]).reshape(entry["shape"]).copy()

    return built(json.loads(content[LENGTH_BYTES:end]))


def item_digest(item: object) -> str:
    """Return the SHA-256 (hex) of an item; a path of a file counts by the file's content, wherever it is."""
    digest = hashlib.sha256()

    def kept(content: bytes, **entry: Any) -> dict[str, Any]:
        return {**entry, "sha256": hashlib.sha256(content).hexdigest()}

    digest.update(json.dumps(_described(item, kept, file=_content_of)).encode())
    return digest.hexdigest()


def _content_of(path: PurePath) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _described(item: object, kept: Callable[..., dict[str, Any]], file: Callable[[PurePath], str] = str) -> Any:
    """Return ``item`` as JSON types, whose arrays and bytes ``kept`` receives in their order."""
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, bytes):
        return kept(item, kind="bytes")
    if isinstance(item, PurePath):
        return {"kind": "path", "value": file(item)}
    if isinstance(item, np.ndarray) and item.dtype.kind in "biufc":
        content = np.ascontiguousarray(item).tobytes()
        return kept(content, kind="array", dtype=item.dtype.str, shape=list(item.shape))
    if isinstance(item, list | tuple):
        kind = "list" if isinstance(item, list) else "tuple"
        return {"kind": kind, "value": [_described(part, kept, file) for part in item]}
    if isinstance(item, Mapping) and all(isinstance(key, str) for key in item):
        return {"kind": "mapping", "value": [[key, _described(part, kept, file)] for key, part in item.items()]}
    raise ValueError(f"it is of {type(item).__name__}; an item is {KINDS}")

"""The keys that a file may have, as paths such as ``training.lr``, and which of them an unknown one may have meant."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from trainables.mistakes import suggestion

SYNONYMS = {
    "architecture": "model.backbone",
    "bs": "training.batch_size",
    "data": "dataset",
    "dir": "dataset.root",
    "eval": "metrics",
    "evaluation": "metrics",
    "hyperparameters": "space",
    "learning_rate": "training.lr",
    "model.name": "model.backbone",
    "network": "model",
    "parallel": "search.max_concurrent",
    "params": "space",
    "path": "dataset.root",
}
"""What other programs call our keys."""


def key_paths(target: Any) -> tuple[str, ...]:
    """The keys of a section and, with a dot between, those of the sections in it."""
    return tuple(_key_paths(target))


def _key_paths(target: Any) -> Iterable[str]:
    for key, annotation in _fields(target).items():
        yield key
        yield from (f"{key}.{inner}" for inner in _key_paths(annotation))


def _fields(target: Any) -> Mapping[str, Any]:
    if fields := getattr(target, "model_fields", None):
        return {field.alias or name: field.annotation for name, field in fields.items()}
    return get_type_hints(target) if isinstance(target, type) and is_dataclass(target) else {}


def key_hint(path: str, known: Sequence[str]) -> str:
    """`` (did you mean …?)`` where a key like ``path`` is ``known``, in its section or in another one."""
    for name in (path, path.rpartition(".")[2]):
        if name in SYNONYMS:
            ends = (SYNONYMS[name], f".{SYNONYMS[name]}")
            path = next((key for key in known if key == ends[0] or key.endswith(ends[1])), path)
            break
    return suggestion(path, known)

"""What of a search file may change while its search goes on, and the digest of what may not."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from search.config.search_config import SearchConfig
from spaces.value import Value

SECTIONS = ("resources", "tracking", "stages", "ship")
OF_SEARCH = ("trials", "audit")
"""Of the section ``search``: more trials until the configurations are chosen, an audit of the pruning at any time."""


def may_change(key: str) -> bool:
    """Whether the entry ``key``, such as ``search.trials``, may differ from what the search began with."""
    return key.split(".")[0] in SECTIONS or key in [f"search.{name}" for name in OF_SEARCH]


def settled(config: SearchConfig) -> dict[str, Any]:
    """All entries of a search file that may not change."""
    content = config.model_dump(mode="json", exclude={*SECTIONS})
    content["search"] = {name: value for name, value in content["search"].items() if name not in OF_SEARCH}
    return content


def settled_digest(config: SearchConfig) -> str:
    """SHA-256 of all entries of a search file that may not change."""
    return hashlib.sha256(json.dumps(settled(config), sort_keys=True).encode()).hexdigest()


def settled_entries(config: SearchConfig) -> dict[str, Value]:
    """All entries that may not change and are set, by key such as ``training.lr``; lists as JSON."""
    return dict(_entries(settled(config)))


def _entries(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Value]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _entries(value, f"{above}{key}.")
        elif isinstance(value, list):
            yield f"{above}{key}", json.dumps(value)
        elif value is not None:
            yield f"{above}{key}", value

"""A scenario: a search, its services and its possible faults."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Content = Callable[[str, Path], dict[str, Any]]
"""A function that returns the content of a search or campaign file, given its name and a folder of images."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of search.

    ``nodes`` is the number of Ray nodes; with 0 each driver starts its own Ray. An ``island`` is one more node, in a
    separate network. A campaign has ``members``, the suffixes of its searches' names. ``openings`` is the number of
    openings of the test classes.
    """

    name: str
    content: Content
    faults: tuple[str, ...]
    losses: tuple[str, ...]
    trials: int
    epochs: int
    epoch_s: float = 0.15
    folds: int = 0
    nodes: int = 0
    postgres: bool = False
    store: bool = False
    disks: bool = False
    clock: bool = False
    island: bool = False
    members: tuple[str, ...] = ()
    openings: int = 0

    def searches(self, name: str) -> tuple[str, ...]:
        """Return the names of the searches of a scenario called ``name``."""
        return tuple(f"{name}-{member}" for member in self.members) or (name,)

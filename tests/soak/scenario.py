"""A search that is broken: what it is, what it runs on, and which faults can come."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Content = Callable[[str, Path], dict[str, Any]]
"""A search or campaign file, for a name and a folder of images."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of search.

    ``nodes`` is how many Ray nodes stand; with 0 each driver starts a Ray of its own. An ``island`` is one more, in a
    network of its own. A campaign has ``members``, what
    follows its name in its searches' names. ``openings`` is how often the test classes are opened.
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

    @property
    def command(self) -> str:
        """What ``holdout`` is told to do."""
        return "campaign" if self.members else "run"

    def searches(self, name: str) -> tuple[str, ...]:
        """The names of the searches when it is called ``name``."""
        return tuple(f"{name}-{member}" for member in self.members) or (name,)

"""What a trial proposes: a value for every parameter that exists in its space."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spaces.value import Value

PREFIX = "training."
"""How the parameters of the training are told from those of the loss."""


@dataclass(frozen=True, eq=False)  # equal to what maps the same names to the same values
class Configuration(Mapping[str, Value]):
    """Values by name: those of the loss, and those of the training as ``training.<name>``."""

    values_by_name: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __hash__(self) -> int:
        return hash(frozenset(self.values_by_name.items()))

    @property
    def hyperparameters(self) -> dict[str, Value]:
        """What the loss is built with."""
        return {name: value for name, value in self.items() if not name.startswith(PREFIX)}

    @property
    def training(self) -> dict[str, Any]:
        """Fields of the training's settings."""
        return {name.removeprefix(PREFIX): value for name, value in self.items() if name.startswith(PREFIX)}

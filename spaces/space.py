"""A search space, which is a mapping of names to ranges, and the values of a trial in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.common.ranges import Choice as Choice, Float as Float, Int as Int, Range as Range, Value as Value

Space = Mapping[str, Range]
"""Ranges by name, each after those that its ``when`` names."""


def value_text(value: Value) -> str:
    """Return a value as shown in tables: floats with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


TRAINING, MODEL = "training", "model"
"""Sections of the search file whose parameters can be searched beside those of the loss."""


@dataclass(frozen=True, eq=False)  # equality is the Mapping's
class Params(Mapping[str, Value]):
    """A trial's params: values by name, those of a section as ``training.<name>`` or ``model.<name>``."""

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
    def loss(self) -> dict[str, Value]:
        return {name: value for name, value in self.items() if "." not in name}

    @property
    def training(self) -> dict[str, Any]:
        return self._of(TRAINING)

    @property
    def model(self) -> dict[str, Any]:
        return self._of(MODEL)

    def _of(self, section: str) -> dict[str, Any]:
        prefix = f"{section}."
        return {name.removeprefix(prefix): value for name, value in self.items() if name.startswith(prefix)}

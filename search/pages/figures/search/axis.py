"""The range of a hyperparameter, as the axis of a picture."""

import html
import math
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search.report.diagnostics.scale import Range, position, value_at
from spaces.value import Value, value_text

_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MARGIN = 0.04


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The hyperparameter ``name``, with the range that was searched."""

    name: str
    distribution: BaseDistribution

    @property
    def range(self) -> Range | None:
        """The range of numbers; None where it is a list of choices."""
        return self.distribution if isinstance(self.distribution, FloatDistribution | IntDistribution) else None

    @property
    def choices(self) -> tuple[Value, ...]:
        """The choices, numbers in their order; none of a range."""
        if not isinstance(self.distribution, CategoricalDistribution):
            return ()
        choices = self.distribution.choices
        are_numbers = all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in choices)
        return tuple(sorted(choices)) if are_numbers else choices  # type: ignore[type-var]

    @property
    def text(self) -> str:
        """The range or the choices in words."""
        if self.range is None:
            return ", ".join(map(value_text, self.choices))
        ends = f"[{value_text(self.range.low)}, {value_text(self.range.high)}]"
        return f"{ends}, log" if self.range.log else ends

    def place(self, value: Value) -> Any:
        """Where ``value`` is drawn: a number is itself, a choice its position in the list."""
        return self.choices.index(value) if self.range is None else value

    def share(self, value: Value) -> float:
        """Where ``value`` lies, from 0 at the low end of the range to 1 at its high end, in its own scale."""
        if self.range is None:
            return self.choices.index(value) / (len(self.choices) - 1)
        return position(self.range, value)  # type: ignore[arg-type]

    def value_at(self, share: float) -> float:
        """The number at a share of the range."""
        assert self.range is not None, "a choice has no neighbours"
        return value_at(self.range, share)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Shares of the range and the values there."""
        if self.range is None:
            return [(self.share(choice), value_text(choice)) for choice in self.choices]
        return [(share, value_text(float(self.value_at(share)))) for share in _TICKS]

    @property
    def layout(self) -> dict[str, Any]:
        """An axis of Plotly that shows the range and a little beyond; dotted lines belong at its :attr:`ends`."""
        title = {"text": html.escape(self.name)}
        if self.range is None:
            texts = [html.escape(value_text(choice)) for choice in self.choices]
            places = list(range(len(texts)))
            return {"title": title, "tickvals": places, "ticktext": texts, "range": [-0.5, len(texts) - 0.5]}
        return {"title": title, "type": "log" if self.range.log else "linear", "range": self._seen}

    @property
    def _seen(self) -> list[float]:
        """From where to where the axis goes; along a logarithm Plotly wants the exponents."""
        assert self.range is not None
        ends = [self.value_at(-_MARGIN), self.value_at(1 + _MARGIN)]
        return [math.log10(end) for end in ends] if self.range.log else ends

    @property
    def ends(self) -> tuple[float, ...]:
        """Both ends of a range of numbers."""
        return () if self.range is None else (self.range.low, self.range.high)

"""Rules of settings, declared once in their types: ``epochs: Annotated[int, Bounds(ge=1)]``.

:func:`rule_mistakes` checks a dataclass; pydantic checks the same rules in a search file; :mod:`search.config.keys`
prints them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from trainables.mistakes import Mistakes, suggestion
from trainables.parts import is_own

if TYPE_CHECKING:  # Any where pydantic is missing
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


@dataclass(frozen=True)
class Rule(ABC):
    """A rule for the values of a type; null is always allowed."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The rule in words, after "must be"."""

    @abstractmethod
    def _holds(self, value: Any) -> bool:
        """Return True if the rule allows ``value``, which is not null."""

    def problem(self, value: Any) -> str | None:
        """Return the end of a sentence, from its verb, if ``value`` breaks the rule."""
        if value is None or self._holds(value):
            return None
        shown = f"{value:g}" if isinstance(value, float) else repr(list(value) if isinstance(value, tuple) else value)
        return f"must be {self.text}; it is {shown}{self._hint(value)}."

    def _hint(self, value: Any) -> str:
        return ""

    def mistakes(self, key: str, value: Any) -> list[str]:
        """Return a sentence if ``value``, that of ``key``, breaks the rule."""
        problem = self.problem(value)
        return [f"{key} {problem}"] if problem else []

    def checked(self, value: Any) -> Any:
        """Return ``value``; raise :class:`Mistakes` if it breaks the rule."""
        if problem := self.problem(value):
            raise Mistakes(problem)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Return the schema by which pydantic checks the rule after the type."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self.checked, handler(source))


@dataclass(frozen=True)
class Bounds(Rule):
    """Bounds of a finite number, or of each number in a list, named as in pydantic."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    @property
    def text(self) -> str:
        """The bounds in words."""
        bounds = {"at least": self.ge, "more than": self.gt, "at most": self.le, "less than": self.lt}
        return ", ".join(f"{words} {bound}" for words, bound in bounds.items() if bound is not None)

    def _holds(self, value: Any) -> bool:
        if isinstance(value, tuple):
            return all(map(self._holds, value))
        return (
            isinstance(value, int | float)
            and math.isfinite(value)
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


@dataclass(frozen=True)
class OneOf(Rule):
    """The names of a table or list; ``others`` are allowed values in words that are not text.

    With ``own`` an import path is allowed, too.
    """

    names: Iterable[str]
    others: tuple[str, ...] = ()
    own: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The names, and the other values in words."""
        return (*self.names, *self.others)

    @property
    def text(self) -> str:
        """The choices in words."""
        own = ", or the import path of your own, such as mylab.parts:Mine" * self.own
        return f"one of {', '.join(self.choices)}{own}"

    def _holds(self, value: Any) -> bool:
        return not isinstance(value, str) or value in self.names or (self.own and is_own(value))

    def _hint(self, value: Any) -> str:
        return suggestion(value, self.names)


def rules_of(annotation: Any) -> tuple[Rule, ...]:
    """Return the rules that a type declares."""
    found = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return tuple(rule for rule in found if isinstance(rule, Rule))


def rule_mistakes(settings: Any, above: str = "") -> list[str]:
    """Return a sentence for each rule that a field of the dataclass ``settings`` breaks; ``above`` precedes its key."""
    found = []
    for name, annotation in _annotations(settings.__class__).items():
        value = getattr(settings, name)
        for rule in rules_of(annotation):
            of_type = get_args(annotation)[0]
            if isinstance(value, float) and float not in (of_type, *get_args(of_type)):
                found.append(f"{above}{name} must be a whole number; it is {value:g}.")
            else:
                found += rule.mistakes(f"{above}{name}", value)
    return found


@cache
def _annotations(target: Any) -> dict[str, Any]:
    return get_type_hints(target, include_extras=True)

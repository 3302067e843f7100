"""Rules of settings, declared once in their types: ``epochs: Annotated[int, Bounds(ge=1)]``.

:func:`rule_mistakes` checks a dataclass; pydantic checks the same rules in a search file; :mod:`search.config.keys`
prints them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral, Real
from operator import ge, gt, le, lt
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from trainables.common.errors import Mistake, raise_if_any, suggestion
from trainables.common.part_tables import is_own


@dataclass(frozen=True)
class Rule(ABC):
    """A rule for the values of a type."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The rule in words, after "must be"."""

    @abstractmethod
    def _holds(self, value: Any) -> bool: ...

    def _hint(self, value: Any) -> str:
        return ""

    def mistakes(self, key: str, value: Any) -> list[Mistake]:
        """Return the mistake if ``value``, that of ``key``, breaks the rule."""
        if self._holds(value):
            return []
        shown = repr(list(value) if isinstance(value, tuple) else value).removesuffix(".0")
        each = "each " * isinstance(value, tuple)
        return [Mistake(key, f"{each}must be {self.text}", f"it is {shown}{self._hint(value)}")]

    def checked(self, value: Any) -> Any:
        """Return ``value``; raise :class:`InvalidInput` if it breaks the rule. The type says whether it may be null."""
        if value is not None:
            raise_if_any(self.mistakes("", value))
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the schema by which pydantic, which calls this, checks the rule after the type."""
        check = {"type": "no-info", "function": self.checked}
        return {"type": "function-after", "function": check, "schema": handler(source)}


@dataclass(frozen=True)
class Bounds(Rule):
    """Bounds of a finite number, or of each number in a list, named as in pydantic; a bool is not a number."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    whole: bool = False

    @property
    def text(self) -> str:
        bounds = {"at least": self.ge, "more than": self.gt, "at most": self.le, "less than": self.lt}
        given = [f"{words} {bound}" for words, bound in bounds.items() if bound is not None]
        return ", ".join(["a whole number"] * self.whole + given) or "a finite number"

    def _holds(self, value: Any) -> bool:
        if isinstance(value, tuple):
            return all(map(self._holds, value))
        is_number = isinstance(value, Integral if self.whole else Real) and not isinstance(value, bool)
        bounds = ((ge, self.ge), (gt, self.gt), (le, self.le), (lt, self.lt))
        kept = (holds(value, bound) for holds, bound in bounds if bound is not None)
        return is_number and math.isfinite(value) and all(kept)


Count = Annotated[int, Bounds(ge=1)]
Positive = Annotated[float, Bounds(gt=0)]
NotNegative = Annotated[float, Bounds(ge=0)]


@dataclass(frozen=True)
class OneOf(Rule):
    """One of ``names``; ``others`` are allowed values in words that are no text, ``own`` allows an import path, too."""

    names: Iterable[Any]
    others: tuple[str, ...] = ()
    own: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The names, and the other values in words."""
        return (*map(str, self.names), *self.others)

    @property
    def text(self) -> str:
        own = ", or the import path of your own, such as mylab.parts:Mine" * self.own
        return f"one of {', '.join(self.choices)}{own}"

    def _holds(self, value: Any) -> bool:
        is_text = isinstance(value, str)
        if self.others and not is_text:
            return True
        is_name = any((is_text or type(value) is type(name)) and value == name for name in self.names)
        return is_name or (self.own and is_own(value))

    def _hint(self, value: Any) -> str:
        return suggestion(value, self.names)


def rules_of(annotation: Any) -> tuple[Rule, ...]:
    """Return the rules that a type declares."""
    found = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return tuple(rule for rule in found if isinstance(rule, Rule))


def rule_mistakes(settings: Any) -> list[Mistake]:
    """Return a mistake for each rule that a field of the dataclass ``settings`` breaks."""
    return [
        mistake
        for name, rule, may_be_none in _rules_by_field(settings.__class__)
        if not (may_be_none and getattr(settings, name) is None)
        for mistake in rule.mistakes(name, getattr(settings, name))
    ]


@cache  # every trial makes such dataclasses
def _rules_by_field(target: Any) -> list[tuple[str, Rule, bool]]:
    """Return for each field its name, its rule, for whole numbers if its type says so, and True if it may be None."""
    found = []
    for name, hint in get_type_hints(target, include_extras=True).items():
        for rule in rules_of(hint):
            types = get_args(hint)[0], *get_args(get_args(hint)[0])
            if isinstance(rule, Bounds) and int in types:
                rule = replace(rule, whole=True)
            found.append((name, rule, NoneType in types))
    return found

"""Contract tests of parts, built-in or user-defined, as `holdout check` runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from spaces.space import Space

Check = Callable[[], str]
"""A check returns a sentence that describes the problem, or an empty string."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a check of a machine, a search or a part; ``fix`` is the advice where ``state`` is not ok."""

    check: str
    state: Literal["ok", "warning", "failed"]
    found: str = ""
    fix: str = ""

    @property
    def ok(self) -> bool:
        return self.state == "ok"


def ends_problem(space: Space, build: Callable[[dict[str, Any]], object]) -> str:
    """Check that a part can be built with both ends of every range and every choice."""
    for name, entry in space.items():
        for value in entry.ends:
            try:
                build({name: value})
            except Exception as error:
                return f"{name} = {value!r} is in its space and raises {type(error).__name__}: {error}."
    return ""

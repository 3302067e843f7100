"""Contract tests of parts, built-in or user-defined, as `holdout check` runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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

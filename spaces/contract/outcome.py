"""Outcomes of the checks of a part."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trainables.errors import InvalidInput
from trainables.secrets import without_password

Check = Callable[[], str]
"""A check returns a sentence that describes the problem, or an empty string."""


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """Outcome of one check: the requirement ``what``, and a ``sentence`` that describes the problem if not ``ok``."""

    what: str
    ok: bool
    sentence: str = ""


def outcome_of(what: str, check: Check) -> CheckOutcome:
    """Run one check. An exception is a failed check, and the state of random generators is restored."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            sentence = check()
    except InvalidInput as error:
        sentence = " ".join(error.sentences)
    except Exception as error:  # a user's part may raise anything
        sentence = without_password(f"It raises {type(error).__name__}: {error}.")
    return CheckOutcome(what=what, ok=not sentence, sentence=sentence)


class Contract(Protocol):
    """The checks of a part, which was loaded to make this object."""

    def checks(self) -> Mapping[str, Check]:
        """Return the checks by what they require, in the order in which they are run."""


def outcomes(load: Callable[..., Contract], *part: Any) -> Iterator[CheckOutcome]:
    """Load a ``part``, then run the checks of its contract. Nothing is raised."""
    checks: dict[str, Check] = {}

    def can_be_loaded() -> str:
        checks.update(load(*part).checks())
        return ""

    yield outcome_of("It can be loaded.", can_be_loaded)
    for what, check in checks.items():
        yield outcome_of(what, check)

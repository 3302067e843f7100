"""What came of one check of a part."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from trainables.mistakes import Mistakes

Check = Callable[[], str]
"""A check gives the sentence on what is wrong, and an empty one where nothing is."""


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """``what`` was asked of a part, whether it is so, and where it is not a ``sentence`` that says what is wrong."""

    what: str
    ok: bool
    sentence: str = ""


def outcome_of(what: str, check: Check) -> CheckOutcome:
    """Run one check. A part that raises has failed it; nothing is raised here, and no random number is used up."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            sentence = check()
    except Mistakes as error:
        sentence = " ".join(error.sentences)
    except Exception as error:  # somebody's part may raise anything
        sentence = f"It raises {type(error).__name__}: {error}."
    return CheckOutcome(what=what, ok=not sentence, sentence=sentence)


def outcomes_of(load: Callable[[], Mapping[str, Check]]) -> Iterator[CheckOutcome]:
    """Load a part, which gives its checks, and run them one after the other."""
    checks: dict[str, Check] = {}

    def can_be_loaded() -> str:
        checks.update(load())
        return ""

    yield outcome_of("It can be loaded.", can_be_loaded)
    for what, check in checks.items():
        yield outcome_of(what, check)

"""The sentences of many checks, collected."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from search.config.left_out import NOTHING, LeftOut
from trainables.mistakes import Mistakes, raise_if_any

Result = TypeVar("Result")


class Findings:
    """What is wrong with a search; ``mistakes`` are known before, and ``left_out`` are the entries that they are about.

    A check that rests on such an entry is not made: a default stands there, and the file will say something else.
    """

    def __init__(self, mistakes: Sequence[str] = (), left_out: LeftOut = NOTHING) -> None:
        self.left_out = left_out
        self._sentences = dict.fromkeys(mistakes)  # a set that keeps its order

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is wrong, each once."""
        return tuple(self._sentences)

    def add(self, sentences: Iterable[str]) -> None:
        """Sentences that are true whatever was left out."""
        self._sentences |= dict.fromkeys(sentences)

    def check(self, find: Callable[[], Result], *keys: str) -> Result | None:
        """What ``find`` gives; None where it raises :class:`Mistakes`, or rests on ``keys`` that were left out."""
        if any(self.left_out.touched(key) for key in keys):
            return None
        try:
            return find()
        except Mistakes as error:
            self.add(error.sentences)
            return None

    def raise_if_any(self) -> None:
        """Raise :class:`Mistakes` where something is wrong."""
        raise_if_any(self.sentences)

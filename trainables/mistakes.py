"""A user's mistakes: plain sentences, all of them at once."""

import difflib
from collections.abc import Iterable, Sequence


class Mistakes(ValueError):
    """Bad input. Each sentence says what is wrong, the value received and how to mend it."""

    def __init__(self, sentences: Sequence[str] | str) -> None:
        self.sentences: tuple[str, ...] = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        assert self.sentences, "a mistake without a sentence"
        super().__init__("\n".join(self.sentences))

    def __reduce__(self) -> tuple[type["Mistakes"], tuple[tuple[str, ...]]]:
        return type(self), (self.sentences,)  # so that it crosses process borders whole


def raise_if_any(sentences: Sequence[str]) -> None:
    """Raise :class:`Mistakes` when there is a sentence to say."""
    if sentences:
        raise Mistakes(sentences)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`` (did you mean …?)`` where something like ``name`` is known."""
    close = difflib.get_close_matches(str(name), [str(entry) for entry in known], n=1)
    return f" (did you mean {close[0]}?)" if close else ""

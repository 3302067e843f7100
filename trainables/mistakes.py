"""What ends a command in plain words: a user's mistakes, all of them at once, and what could not be done."""

import difflib
import re
from collections.abc import Iterable, Sequence


class Mistakes(ValueError):
    """Bad input. Each sentence says what is wrong, the value received and how to mend it."""

    def __init__(self, sentences: Sequence[str] | str) -> None:
        self.sentences: tuple[str, ...] = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        assert self.sentences, "a mistake without a sentence"
        super().__init__("\n".join(self.sentences))

    def __reduce__(self) -> tuple[type["Mistakes"], tuple[tuple[str, ...]]]:
        return type(self), (self.sentences,)  # so that it crosses process borders whole


class Failure(RuntimeError):
    """What was asked for could not be done; the message says why and what helps. The exit code is 1."""


def raise_if_any(sentences: Sequence[str]) -> None:
    """Raise :class:`Mistakes` when there is a sentence to say."""
    if sentences:
        raise Mistakes(sentences)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`` (did you mean …?)`` where something like ``name`` is known.

    Names may have dots: ``trials`` may mean ``search.trials``. Where several fit equally, all are named.
    """
    close = _closest(str(name), [str(entry) for entry in known])
    if not close:
        return ""
    # A Cyrillic letter looks like a Latin one.
    lookalike = "" if str(name).isascii() else f" It is written {str(name)!a}."
    return f" (did you mean {', '.join(close[:-1])}{' or ' if close[1:] else ''}{close[-1]}?{lookalike})"


def _closest(name: str, known: Sequence[str]) -> list[str]:
    """The entries of ``known`` that ``name`` may have meant: by another spelling, in another section, or nearly."""
    given = _spelling(name)
    spelt = {_spelling(entry): entry for entry in known}
    if given in spelt:
        return [spelt[given]]
    last = given.rpartition(".")[2]
    for end in (given, last):
        if elsewhere := [entry for spelling, entry in spelt.items() if spelling.endswith(f".{end}") or spelling == end]:
            return elsewhere
    ends = {spelling.rpartition(".")[2]: entry for spelling, entry in reversed(spelt.items())}
    section = given.removesuffix(last)
    beside = [spelling.removeprefix(section) for spelling in spelt if spelling.startswith(section)]
    if close := difflib.get_close_matches(last, [end for end in beside if "." not in end], n=1):
        return [spelt[section + close[0]]]
    if close := difflib.get_close_matches(last, ends, n=1, cutoff=0.7):
        return [ends[close[0]]]
    words = set(last.split("_"))
    longer = [entry for end, entry in ends.items() if words <= set(end.split("_")) or words >= set(end.split("_"))]
    return longer[::-1][:3]


def _spelling(name: str) -> str:
    """``name`` without what people write differently: ``Recall@1`` is ``recall_at_1``."""
    return re.sub(r"[\s-]+", "_", name.strip().lower().replace("@", "_at_"))

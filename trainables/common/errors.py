"""Errors that end a command with a plain message, helpers that word them, and secrets, which no text shows.

A secret is the value of an environment variable that is named like one, such as ``API_TOKEN``, or that a search file
refers to as ``${NAME}``; and a password that an address contains.
"""

import difflib
import html
import json
import os
import re
import traceback
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Self
from urllib.parse import quote, quote_plus


class InCell(Exception):
    """An error that a notebook's cell shows without its traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{type(self).__name__}: {self}"]


class InvalidInput(InCell, ValueError):
    """Bad input. Each sentence, a :class:`Mistake` or text, gives the rule, the value received and the fix."""

    def __init__(self, sentences: Sequence[str] | str) -> None:
        given = (sentences,) if isinstance(sentences, str) else sentences
        self.sentences = tuple(each if isinstance(each, Mistake) else without_password(each) for each in given)
        assert self.sentences, "a mistake without a sentence"
        super().__init__("\n".join(self.sentences))

    def __reduce__(self) -> tuple[type["InvalidInput"], tuple[tuple[str, ...]]]:
        return type(self), (self.sentences,)  # keeps the sentences when pickled


class Mistake(str):
    """The sentence on a mistake in a file: its ``key``, the ``text`` on it, and the ``fix``, without secrets.

    It depends on the entries ``keys``, and is not reported where one of them is wrong itself: the corrected file may be
    right. A section names keys as it holds them; what holds the section puts its mistakes :meth:`below` its own key.
    """

    key: str
    text: str
    fix: str
    keys: tuple[str, ...]

    def __new__(cls, key: str, text: str, fix: str = "", keys: Iterable[str] | None = None) -> Self:
        text, fix = without_password(text), without_password(fix)
        between = "" if not key or text.startswith(":") else " "
        mistake = super().__new__(cls, f"{key}{between}{text}{'; ' if fix else ''}{fix}.")
        mistake.key, mistake.text, mistake.fix = key, text, fix
        mistake.keys = (key,) if keys is None else tuple(keys)
        return mistake

    def __getnewargs__(self) -> tuple[Any, ...]:  # when pickled, as a sentence of InvalidInput may be
        return self.key, self.text, self.fix, self.keys

    @classmethod
    def of(cls, sentence: str) -> "Mistake":
        """Return a ``sentence`` that may be plain text, which names no key."""
        return sentence if isinstance(sentence, Mistake) else cls("", sentence.removesuffix("."))

    @property
    def advice(self) -> str:
        return f"{self.fix[:1].upper()}{self.fix[1:]}{'.' if self.fix else ''}"

    def at(self, key: str, keys: Iterable[str] | None = None) -> "Mistake":
        """Return this mistake as one at another ``key``, which depends on ``keys``."""
        return Mistake(key, self.text if self.key or not key else f": {self.text}", self.fix, keys)

    def below(self, section: str) -> "Mistake":
        """Return this mistake of a section as one of the file that holds it at the key ``section``."""
        keys = [f"{section}.{key}" if key else section for key in self.keys]
        is_placed = not self.key and self.text.startswith(f"{section}.")  # data sets write their keys out
        return self.at("" if is_placed else f"{section}.{self.key}" if self.key else section, keys)


class Failure(InCell, RuntimeError):
    """An operation that failed for an outside reason, given with its fix, without secrets. Exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(without_password(message))


def raise_if_any(sentences: Sequence[str]) -> None:
    """Raise :class:`InvalidInput` unless ``sentences`` is empty."""
    if sentences:
        raise InvalidInput(sentences)


def printable(text: str) -> str:
    """Return ``text`` without secrets; control characters but line breaks and tabs, and direction marks, are escaped.

    >>> printable("a\x1b[2J")
    'a\\x1b[2J'
    """
    shown = without_password(text)
    return "".join(mark if mark.isprintable() or mark in "\n\t" else ascii(mark)[1:-1] for mark in shown)


def shortened(text: str) -> str:
    """Return ``text``, with an ellipsis in place of its end if it has more than 80 characters."""
    return text if len(text) <= 80 else f"{text[:77]}…"


def listed(names: Sequence[str], separator: str = ", ", shown: int = 20) -> str:
    """Join the first ``shown`` names and count the rest, escaping unprintable characters.

    File names may contain line breaks and terminal control sequences.

    >>> listed(["a", "b", "c"], shown=2)
    'a, b, and 1 more'
    """
    shown_names = [name if name.isprintable() else repr(name)[1:-1] for name in names[:shown]]
    rest = [f"and {len(names) - shown:,} more"] if len(names) > shown else []
    return separator.join([*shown_names, *rest])


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number with its noun; ``plural`` defaults to the noun with an s.

    >>> counted(1, "image"), counted(2000, "class", "classes")
    ('1 image', '2,000 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def ranged(least: int, most: int, noun: str) -> str:
    """Return a range of numbers with its noun.

    >>> ranged(20, 20, "image"), ranged(1, 1, "image"), ranged(105, 2000, "pixel")
    ('20 images', '1 image', '105 to 2,000 pixels')
    """
    return counted(least, noun) if least == most else f"{least:,} to {counted(most, noun)}"


def shaped(shape: Iterable[int]) -> str:
    """Return the shape of an array.

    >>> shaped((3, 4)), shaped(())
    ('3 × 4', 'a single value')
    """
    return " × ".join(map(str, shape)) or "a single value"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean …?)`` if an entry of ``known`` resembles ``name``, else an empty string.

    Names may be dotted: ``trials`` may mean ``search.trials``. Equally good matches are all listed.
    """
    close = _closest(str(name), [str(entry) for entry in known])
    if not close:
        return ""
    # A Cyrillic letter can look like a Latin one.
    lookalike = "" if str(name).isascii() else f" It is written {str(name)!a}."
    return f" (did you mean {', '.join(close[:-1])}{' or ' if close[1:] else ''}{close[-1]}?{lookalike})"


def _closest(name: str, known: Sequence[str]) -> list[str]:
    """Return the entries of ``known`` that ``name`` may mean: another spelling, another section, or a typing error."""
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
    siblings = [spelling.removeprefix(section) for spelling in spelt if spelling.startswith(section)]
    beside = _typing_error(last, [end for end in siblings if "." not in end])
    anywhere = _typing_error(last, ends, cutoff=0.7)
    near = [(name, spelt[section + name]) for name in beside] + [(name, ends[name]) for name in anywhere]
    if near:  # of two that are as like, the one of the same section
        return [max(near, key=lambda each: difflib.SequenceMatcher(None, each[0], last).ratio())[1]]
    words = set(last.split("_"))
    longer = [entry for end, entry in ends.items() if words <= set(end.split("_")) or words >= set(end.split("_"))]
    return longer[::-1][:3]


SHORT = 4
"""Names of at most this many letters are similar by chance: ``nix`` and ``uni`` share two of three."""


def _typing_error(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return the most similar entry of ``known``; short names may differ in one letter or in the order."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return [entry for entry in close if max(len(name), len(entry)) > SHORT or _is_one_slip(name, entry)]


def _is_one_slip(one: str, other: str) -> bool:
    changes = [change for change in difflib.SequenceMatcher(None, one, other).get_opcodes() if change[0] != "equal"]
    is_one_letter = [max(end - start, to - at) for _, start, end, at, to in changes] == [1]
    return is_one_letter or sorted(one) == sorted(other)


def _spelling(name: str) -> str:
    """Normalize ``name``: ``Recall@1`` becomes ``recall_at_1``."""
    return re.sub(r"[\s-]+", "_", name.strip().lower().replace("@", "_at_"))


# Secrets, masked where an error or an address becomes a text.

REFERRED = "HOLDOUT_SECRETS"
"""The environment variable with the names to which search files refer; workers inherit it."""
LEAST = 6
"""The length of the shortest value that is masked: shorter ones are parts of other words."""

PASSWORD = re.compile(
    r"((?:://|:/(?!/)|(?<![:/])//)[^/@\s:]*:)((\$\{\w+\})|[^@\s]+)(?=@)"  # of a user, or the reference to one
    r"|((?:password|passwd|secret|token|signature|access_key|api_?key|(?<![a-z])sig)=)"  # in a query
    r"(?:(\$\{\w+\})(?=[&;\s'\"]|$)|[^&;\s'\"]+)",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"([^_]*(PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|KEY|CREDENTIAL|(?<=_)PWD|(?<=_)PASS)S?\d*(_|$))", re.IGNORECASE
)
_PLACE = ("_FILE", "_PATH", "_DIR", "_FOLDER")


def refer(names: Iterable[str]) -> None:
    """Mask the values of the environment variables ``names`` from now on, here and in workers that start later."""
    os.environ[REFERRED] = " ".join(sorted({*os.environ.get(REFERRED, "").split(), *names}))


def without_password(text: str) -> str:
    """Mask the secrets in ``text``: values are shown as ``${NAME}``, and passwords in addresses as ``***``."""
    referred = os.environ.get(REFERRED, "").split()
    known = {
        value: name
        for name, value in sorted(os.environ.items(), reverse=True)
        if len(value) >= LEAST and (name in referred or _is_secret(name))
    }
    if known:
        names = {form: name for value, name in known.items() for form in _forms(value)}
        text = _pattern(tuple(sorted(names, key=len, reverse=True))).sub(
            lambda match: f"${{{names[match[0]]}}}" if match[0] in names else match[0], text
        )
    return PASSWORD.sub(lambda match: match[0] if match[3] or match[5] else f"{match[1] or match[4]}***", text)


def traced(error: BaseException) -> str:
    """Return the traceback of ``error`` and its causes, without secrets."""
    return without_password("".join(traceback.format_exception(error)).rstrip())


@lru_cache
def _is_secret(name: str) -> bool:
    return bool(_NAMED.search(name)) and not name.upper().endswith(_PLACE)


@lru_cache
def _pattern(forms: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of any of ``forms``; what is a reference already matches without."""
    return re.compile("|".join((r"\$\{\w+\}", *map(re.escape, forms))))


@lru_cache
def _forms(value: str) -> frozenset[str]:
    """Return ``value`` as it is, in a ``repr`` or JSON, once more within another, on a page and in a URL."""
    once = {repr(value)[1:-1], ascii(value)[1:-1], json.dumps(value)[1:-1]}
    twice = {form.replace("\\", "\\\\") for form in once}
    escaped = {form.replace(mark, f"\\{mark}") for form in once | twice for mark in ("'", '"')}
    quoted = {
        form(value, safe=safe, errors="surrogateescape") for form in (quote, quote_plus) for safe in ("", "/", "/:[]")
    }
    return frozenset((value, html.escape(value), *once, *twice, *escaped, *quoted))

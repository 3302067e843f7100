"""Secrets, masked where an error or an address becomes a text.

A secret is the value of an environment variable that is named like one, such as ``API_TOKEN``, or that a search file
refers to as ``${NAME}``; and a password that an address contains.
"""

import html
import json
import os
import re
import traceback
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

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
_WORDS = {"password", "passwd", "secret", "signature", "access_key", "api_key", "apikey"}


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
        values = sorted(known, key=len, reverse=True)
        text = _pattern(tuple(values)).sub(
            lambda match: f"${{{known[values[match.lastindex - 1]]}}}" if match.lastindex else match[0], text
        )
    return PASSWORD.sub(lambda match: match[0] if match[3] or match[5] else f"{match[1] or match[4]}***", text)


def traced(error: BaseException) -> str:
    """Return the traceback of ``error`` and its causes, without secrets."""
    return without_password("".join(traceback.format_exception(error)).rstrip())


@lru_cache
def _is_secret(name: str) -> bool:
    return bool(_NAMED.search(name)) and not name.upper().endswith(_PLACE)


@lru_cache
def _pattern(values: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of all forms of ``values``, in a group each; what is a reference already matches without."""
    words = "|".join(
        f"({''.join(map(_forms, value))}){'(?!=)' if value.lower() in _WORDS else ''}"  # a key is no value
        for value in values
    )
    return re.compile(rf"\$\{{\w+\}}|{words}")


@lru_cache
def _forms(letter: str) -> str:
    """Return the pattern of a letter as it is, escaped once or more as in a ``repr`` or JSON, or quoted for a URL."""
    if letter.isascii() and letter.isalnum():
        return letter
    written = {letter, repr(letter)[1:-1], ascii(letter)[1:-1], json.dumps(letter)[1:-1], html.escape(letter)}
    forms = {re.sub(r"(\\\\)+", r"\\\\{1,9}", re.escape(form)) for form in written}
    if letter in "'\"\\":
        forms.add(rf"\\{{1,9}}{re.escape(letter)}")
    if letter.isspace():
        forms |= {r"\s+", r"\+"}
    forms.add(f"(?i:{re.escape(quote(letter, safe='', errors='surrogateescape'))})")
    return f"(?:{'|'.join(sorted(forms))})"

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
from urllib.parse import quote, quote_plus

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

"""How a value that was refused is spoken of: pydantic's kinds of error in plain words."""

import math
import re
from collections.abc import Sequence
from typing import Any

from search.config.secrets import without_password

MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be finite",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be keys and values",
    "model_type": "must be keys and values",
    "dataclass_type": "must be keys and values",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have an entry at least",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
}
"""Pydantic's kinds of error as this program says them."""


def _message(error: Any) -> str:
    if error["type"] in MESSAGES:
        text = MESSAGES[error["type"]].format(**error.get("ctx", {}))
        return re.sub(r"<[\w.]+: ('\w+')>", r"\1", text)  # how pydantic shows some of an enum's members
    text = str(error.get("ctx", {}).get("error") or error["msg"]).rstrip(".")
    return f"{text[0].lower()}{text[1:]}"


MOST = 2**63 - 1
"""What databases, NumPy and PyTorch hold as a whole number."""


def unusable(value: Any) -> str | None:
    """Why a value can stand for no key at all; None where it can."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, int) and abs(value) > MOST:
        return f"must lie between -{MOST} and {MOST}"
    return None


def shown(value: Any) -> str:
    text = without_password(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}…"


def said(errors: Sequence[Any]) -> str:
    """What ``errors`` of one entry say; there are several where an entry may have several forms."""
    return " or ".join(dict.fromkeys(_message(error) for error in errors))

"""Everything that is wrong with a section, in plain sentences, all of it at once."""

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainables.mistakes import Mistakes, raise_if_any, suggestion

Built = TypeVar("Built")


def validation_errors(target: Any, content: dict[str, Any]) -> list[str]:
    """All that is wrong in ``content``: wrong entries are left out and the rest is validated again, until it passes."""
    sentences: list[str] = []
    remaining = content
    while True:
        try:
            TypeAdapter(target).validate_json(_as_json(remaining), strict=True)
            return sentences
        except ValidationError as error:
            found = error.errors()
        found = [entry for entry in found if not (entry["type"] == "missing" and _holds(content, entry["loc"]))]
        told = [sentence for entry in found for sentence in _sentences(entry, target)]
        sentences += [sentence for sentence in told if sentence not in sentences]  # a missing key is missed each time
        shrunk = _without(remaining, [entry["loc"] for entry in found if entry["type"] != "missing"])
        if shrunk == remaining:
            return sentences
        remaining = shrunk


def _holds(content: Any, place: tuple[int | str, ...]) -> bool:
    """Whether something stands at ``place``: where it is missed all the same, it was wrong and is left out."""
    for key in place:
        if not isinstance(content, Mapping) or key not in content:
            return False
        content = content[key]
    return True


def _without(content: dict[str, Any], places: list[tuple[int | str, ...]]) -> dict[str, Any]:
    """``content`` without the entries at ``places`` (a section's own mistake removes the section)."""
    result: dict[Any, Any] = dict(content)
    for place in filter(None, places):  # a mistake of the whole has no place, and nothing to leave out
        key = place[0]
        inner = result.get(key)
        if len(place) > 1 and isinstance(inner, dict) and place[1] in inner:
            result[key] = _without(inner, [place[1:]])
        else:
            result.pop(key, None)
    return result


def _sentences(entry: Any, target: Any) -> list[str]:
    """One pydantic error as plain sentences."""
    place = ".".join(str(part) for part in entry["loc"])
    cause = entry.get("ctx", {}).get("error")
    if isinstance(cause, Mistakes):
        return [_placed(place, sentence) for sentence in cause.sentences]
    if entry["type"] == "missing":
        return [f"{place}: missing; this key is required."]
    if entry["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return [f"{place}: no such key{_key_hint(entry['loc'], target)}; remove it."]
    message = str(cause or entry["msg"]).rstrip(".")
    return [f"{place}: {message[0].lower()}{message[1:]}; it is {_shown(entry['input'])}."]


def _placed(place: str, sentence: str) -> str:
    """``sentence`` with its place before it, unless it begins with it."""
    return sentence if not place or sentence.startswith(f"{place}.") else f"{place}: {sentence}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _key_hint(place: tuple[int | str, ...], target: Any) -> str:
    """What an unknown key of a section may have meant."""
    field = getattr(target, "model_fields", {}).get(place[0])
    if field is None:
        return ""
    keys = getattr(field.annotation, "model_fields", None) or getattr(field.annotation, "__dataclass_fields__", None)
    return suggestion(str(place[-1]), keys) if keys and len(place) == 2 else ""


def build(target: type[Built], content: Mapping[str, Any], *, known: Collection[str], unknown: str) -> Built:
    """The ``target`` that ``content`` describes; keys that are not ``known`` are ``unknown``, as the sentence calls it.

    Raises:
        Mistakes: all that is wrong with it.
    """
    mistakes = [f"{key}: {unknown}{suggestion(str(key), known)}; remove it." for key in content if key not in known]
    accepted = {key: value for key, value in content.items() if key in known}
    mistakes += validation_errors(target, accepted)
    raise_if_any(mistakes)
    return TypeAdapter(target).validate_json(_as_json(accepted), strict=True)


def _as_json(content: Mapping[str, Any]) -> str:
    """``content`` for pydantic's strict reading of JSON, which takes lists and mappings but guesses no types."""
    return json.dumps(content, default=str)

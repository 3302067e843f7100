"""What may change when a search goes on, and what may not."""

from typing import Any

from search.config import SearchConfig, parse_config
from search.runs import RunFolder, stored_config
from trainables.mistakes import raise_if_any

CHANGEABLE = ("resources", "tracking", "stages")


def resumed_config(folder: RunFolder, wanted: SearchConfig) -> SearchConfig:
    """``wanted``, if it may go on with the search that is stored in ``folder``.

    Raises:
        Mistakes: what differs and may not.
    """
    stored = parse_config(stored_config(folder))
    before, after = stored.model_dump(mode="json"), wanted.model_dump(mode="json")
    trials = before["search"].pop("trials"), after["search"].pop("trials")
    sentences = [
        f"{place}: the search {wanted.name} began with {old!r} and the file now says {new!r}; "
        "put it back, or give the search a new name."
        for place, old, new in _differences(before, after)
        if place.split(".")[0] not in CHANGEABLE
    ]
    if trials[1] < trials[0]:
        sentences.append(f"search.trials: it was {trials[0]} and may only grow; it is {trials[1]}.")
    if trials[1] > trials[0] and folder.selection.exists():
        sentences.append(
            f"search.trials: the configurations of {wanted.name} are chosen already, after {trials[0]} trials; "
            "more trials need a new name."
        )
    raise_if_any(sentences)
    return wanted


def _differences(before: Any, after: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys((*before, *after))
        return [
            difference
            for key in keys
            for difference in _differences(before.get(key), after.get(key), f"{place}.{key}" if place else str(key))
        ]
    return [] if before == after else [(place, before, after)]

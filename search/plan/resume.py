"""What may change when a search goes on, and what may not."""

from pathlib import Path
from typing import Any

from search.config.search_config import SearchConfig, parse_config
from search.plan.checks import make_plan
from search.plan.plan import Plan
from search.plan.runs import RunFolder, existing_run, stored_config, stored_split
from trainables.mistakes import Mistakes, raise_if_any

CHANGEABLE = ("resources", "tracking", "stages")


def started_or_resumed(config: SearchConfig, runs: Path) -> Plan:
    """The plan of a search that begins, or goes on with what is stored of it below ``runs``.

    Raises:
        Mistakes: all that is wrong with it, or what differs from the stored search and may not.
    """
    folder = RunFolder(runs, config.name)
    if folder.campaign.exists():
        raise Mistakes(f"name: {config.name} is a campaign in {runs}; call the search something else.")
    known = folder.config.exists()
    plan = make_plan(resumed_config(folder, config) if known else config, runs, addresses=not known)
    refuse_another_split(folder, plan.split.digest)
    return plan


def reopened(runs: Path, name: str) -> Plan:
    """The plan of the search ``name`` as it is stored below ``runs``.

    Raises:
        Mistakes: there is none, or its data have changed.
    """
    folder = existing_run(runs, name)
    plan = make_plan(parse_config(stored_config(folder)), runs, addresses=False)
    refuse_another_split(folder, plan.split.digest)
    return plan


def refuse_another_split(folder: RunFolder, digest: str) -> None:
    """The classes of a search may not change under it.

    Raises:
        Mistakes: they did.
    """
    if not folder.split.exists():
        return
    stored = stored_split(folder).digest
    if stored != digest:
        raise Mistakes(
            f"The classes in the data set are not those that {folder.name} began with (its split is {stored[:12]}, "
            f"now it would be {digest[:12]}); put them back, or give the search a new name."
        )


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

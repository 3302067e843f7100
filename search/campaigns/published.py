"""What a paper prints is of its own setting: beside another one, which the command line asks for, it says nothing."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from search.campaigns.campaign import search_file
from search.campaigns.config import CampaignConfig, Printed, read_config
from search.config.differences import differences
from search.config.recipes import read_search
from search.config.search_config import validate_config
from trainables.mistakes import Mistakes

OF_PLACE = ("root", "cache")
"""Where images lie, which their numbers do not depend on."""
SHOWN = 3
"""So many entries that differ are named."""

Cells = Mapping[str, Mapping[str, Any]]
"""What each cell, as a campaign file names it, is trained with."""


def comparable(content: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """The campaign file ``content`` without the published numbers that are of another setting than its own.

    ``written`` is the file before the command line's settings: its numbers are of what stands in it. Each part that
    loses numbers says why. A file with mistakes stays as it is.
    """
    if content == written:
        return content
    try:
        config, as_written = read_config(content), read_config(written)
        ours, theirs = _cells(config), _cells(as_written)
    except Mistakes:
        return content
    return {
        **content,
        "published": [_kept(section, ours, theirs) for section in config.published],
        "published_choices": [_kept(section, ours, theirs) for section in config.published_choices],
    }


def _kept(section: Printed, ours: Cells, theirs: Cells) -> dict[str, Any]:
    """``section`` with the cells that are trained as they were; of losses that are left out nothing is said."""
    found = {key: list(_differing(ours[key], theirs[key])) for key in section.cells if key in ours and key in theirs}
    changes = list(dict.fromkeys(change for key in found for change in found[key]))
    gone = [key for key in theirs if key not in ours or found.get(key)]
    kept = {key: values for key, values in section.cells.items() if key not in gone}
    reason = {"left_out": _reason(changes)} if changes else {}
    return {**section.model_copy(update={"cells": kept}).model_dump(mode="json"), **reason}


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    for key, here, there in differences(ours, theirs):
        yield f"{key} is {here!r} here and {there!r} there"


def _reason(changes: Sequence[str]) -> str:
    more = f", and {len(changes) - SHOWN} more differ" if len(changes) > SHOWN else ""
    return f"of another setting: {', '.join(changes[:SHOWN])}{more}"


def _cells(config: CampaignConfig) -> dict[str, dict[str, Any]]:
    """What every cell of a campaign's table is trained with."""
    recipe = read_search(Path(config.recipe)) if config.recipe else {}
    found = {}
    for labels in product(*config.vary.values()):
        content = search_file(config, recipe, labels)
        search = validate_config(content).built
        assert search is not None, "a search file of which nothing can be built"
        images = content.get("dataset", {})
        dataset = {key: value for key, value in images.items() if key not in OF_PLACE and value not in (None, False)}
        for loss in search.loss_names:
            shown = search.of_loss(loss).model_dump(mode="json", include={"split", "model", "training"})
            space = {name: search.space.get(name, {}) for name in (loss, "training")}
            found[" ".join((loss, *labels))] = {"dataset": dataset, **shown, "space": space}
    return found

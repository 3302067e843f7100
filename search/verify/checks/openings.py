"""The ledger against what was scored: every opening stands in both."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from search.plan.runs import RunFolder
from search.selection.openings.ledger import Ledger
from search.selection.openings.opening import Opening
from search.selection.selection import Selection
from search.stages.sealed_test import without_images
from search.verify.check import Check, as_json, check, differing
from search.verify.records import Records


def scored(folder: RunFolder) -> list[dict[str, Any]]:
    """What ``test.json`` holds of each opening; nothing where the test classes are sealed."""
    openings: list[dict[str, Any]] = json.loads(folder.test.read_text())["openings"] if folder.test.exists() else []
    return openings


def check_ledger(records: Records, selection: Selection) -> Iterator[Check]:
    """Each opening of this selection has its line and its scores, with the same words."""
    folder = records.plan.folder
    of_selection = Ledger(folder.openings).of_selection(selection.digest)
    lines = [json.loads(line) for line in folder.openings.read_text().splitlines()] if folder.openings.exists() else []
    answered = scored(folder)
    if not of_selection and not answered:
        yield Check("the test: it is sealed", is_there=False)
        return
    count = len(answered)
    yield check(
        f"the ledger: {count} opening{'s' * (count != 1)}, each with its scores",
        _problems(records, of_selection, answered, lines),
    )
    for opening in of_selection[count:]:
        yield Check(f"the scores of the opening of {opening.time}", is_there=False)


def _problems(
    records: Records, ledger: Sequence[Opening], answered: Sequence[dict[str, Any]], lines: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """An opening without scores is gone on with before there is another, so only the last one can lack them."""
    told = [opening.id for opening in ledger][: len(answered)]
    yield from differing("test.json openings", [record["id"] for record in answered], told)
    for opening, record in zip(ledger, answered, strict=False):
        for key, value in as_json(without_images(opening)).items():
            yield from differing(f"test.json opening {opening.id} {key}", record.get(key), value)
    for opening in ledger:  # the user's state folder may hold what is gone from the runs folder
        line = [entry for entry in lines if entry.get("id") == opening.id]
        yield from differing(f"the ledger's lines on {opening.id}", line, [as_json(without_images(opening))])
        read = [{**entry, "read": None} for entry in lines if entry.get("read") == opening.id]
        images = [] if opening.images is None else [{"read": None, **as_json(asdict(opening.images))}]
        yield from differing(f"the images that the ledger has of {opening.id}", read, images)
        yield from differing(
            f"the ledger's opening {opening.id} test_digest", opening.test_digest, records.plan.split.test_digest
        )

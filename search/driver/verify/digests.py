"""The manifest of a search: all that a stored digest covers. No code is imported and nothing is computed again."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any

from search.driver.sealed_test import recorded_openings, scores_digest
from search.driver.verify.comparison import Check, check, differing
from search.plan.runs import RunFolder, stored_split
from search.plan.stored import StoredSearch
from search.report.models import checkpoint_of
from search.selection import Baselines, Ledger, Selection, study_digest
from search.study import stored_trials
from trainables.files import as_path
from trainables.mistakes import counted
from trainables.storage import AnyPath

Entry = tuple[str, str, str | None]
"""A part of the records with the stored digest and that of its content, None if it is missing."""


def check_digests(folder: RunFolder) -> Iterator[Check]:
    """Yield the checks of all digests: split, choice, studies, the ledger's lines, scores, their files and models."""
    yield Check(f"split.json: its digest {stored_split(folder).digest[:12]}")
    selection, records = stored_selection(folder), recorded_openings(folder)
    if selection is None:
        yield Check("selection.json: the choice", is_there=False)
    else:
        yield Check(f"selection.json: its digest {selection.digest[:12]}")
        copy = differing(folder.trained_on_opened.name, folder.trained_on_opened_told(), selection.trained_on_opened)
        yield check(f"{folder.trained_on_opened.name}: its copy in selection.json", copy)
    with closing(StoredSearch(folder)) as stored:
        for what, entries in _manifest(folder, selection, records, stored):
            yield check(what, _changed(entries))


def stored_selection(folder: RunFolder) -> Selection | None:
    """Load the frozen selection, whose digest must match; None before the choice."""
    return Selection.load(folder.selection) if folder.selection.exists() else None


def _manifest(
    folder: RunFolder, selection: Selection | None, records: Mapping[str, dict[str, Any]], stored: StoredSearch
) -> Iterator[tuple[str, Iterator[Entry]]]:
    if folder.baselines.exists() or (selection and selection.baselines):
        yield "baselines.json: its digest and that of the whitening", _baselines(folder, selection)
    if selection is not None:
        yield "the studies: their digests", _studies(stored, selection, records)
    for record in records.values():
        what = f"test.json opening {record['id'][:12]}"
        yield f"{what}: its digest", iter([(what, record["digest"], scores_digest(record))])
        yield f"{what}: its models", _models(stored, record)
        yield f"{what}: its results, neighbours and thumbnails", _files(folder, record)


def _changed(entries: Iterator[Entry]) -> Iterator[str]:
    for name, stored, found in entries:
        if found is None:
            yield f"{name} is missing."
        elif found != stored:
            yield f"{name} was changed: its digest is {found[:12]}, and {stored[:12]} is stored."


def file_digest(path: "AnyPath | None") -> str | None:
    """Return the SHA-256 of a file; None if it is missing."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else None


def _baselines(folder: RunFolder, selection: Selection | None) -> Iterator[Entry]:
    found = Baselines.load(folder.baselines)
    if selection and selection.baselines:
        yield str(folder.baselines), selection.baselines, found and found.digest
    if found:
        yield str(folder.whitened), found.whitening_sha256, file_digest(folder.whitened)


def _studies(stored: StoredSearch, selection: Selection, records: Mapping[str, dict[str, Any]]) -> Iterator[Entry]:
    """Yield the studies of the choice, and the final trainings of this search in each opening."""
    scored = chain.from_iterable(record["studies"].items() for record in records.values())
    own = ((name, digest) for name, digest in scored if name.startswith(f"{stored.name}/"))
    for name, digest in (*selection.studies.items(), *own):
        trials = stored_trials(stored.storage, name) if stored.storage else []
        yield f"The study {name}", digest, study_digest(trials) if trials else None


def _models(stored: StoredSearch, record: Mapping[str, Any]) -> Iterator[Entry]:
    for model in record["scores"]:
        study, _, number = model["per_image"].removesuffix(".npz").rpartition("-")
        path = as_path(checkpoint_of(stored, study, stored.trial_of(study, int(number))))
        yield f"The scored model {path}", model["model_sha256"], file_digest(path)


def _files(folder: RunFolder, record: Mapping[str, Any]) -> Iterator[Entry]:
    from search.selection import EMBEDDINGS, FOLDER, NAME

    place = folder.path / "test" / record["id"]
    there = {str(path): path for path in (folder.path / "test").rglob("*")}  # a name may lead elsewhere
    digests = {NAME: record["thumbnails_sha256"]}
    for model in (*record["scores"], *record.get("baselines", ())):
        name = model["per_image"]
        digests |= {name: model["sha256"], f"{FOLDER}/{name}": model["retrieval_sha256"]}
        if "embeddings_sha256" in model:
            digests[f"{EMBEDDINGS}/{name}"] = model["embeddings_sha256"]
    for name, digest in digests.items():
        yield f"test.json opening {record['id'][:12]} {name}", digest, file_digest(there.get(str(place / name)))


def check_ledger(folder: RunFolder, selection: Selection) -> Iterator[Check]:
    """Check the lines of the ledger, and that it and ``test.json`` have the same openings of this selection."""
    ledger, records = Ledger(folder.openings), recorded_openings(folder)
    openings = ledger.of_selection(selection.digest)
    lacking = dict(ledger.lacking([opening.id for opening in openings]))
    own = (f"{lacking[folder.openings]}." for _ in range(folder.openings in lacking))
    yield check("the ledger: no line was changed, removed or moved", chain(ledger.broken_links(), own))
    for path in lacking.keys() - {folder.openings}:  # the user's, which may be of another machine
        yield Check(lacking[path], is_there=False)
    if not openings and not records:
        yield Check("the scores (the test is sealed)", is_there=False)
        return
    scored = {
        opening.id: {**opening.entry, "test_digest": selection.test_digest, "digest": opening.scores[selection.digest]}
        for opening in openings
        if selection.digest in opening.scores
    }
    found = {
        name: {key: value for key, value in record.items() if key in next(iter(scored.values()), ())}
        for name, record in records.items()
    }
    what = f"the ledger: {counted(len(records), 'opening')}, each with its scores"
    yield check(what, differing("test.json openings", found, scored))
    for opening in openings:
        if opening.id not in scored:
            yield Check(f"the scores of the opening of {opening.time}", is_there=False)

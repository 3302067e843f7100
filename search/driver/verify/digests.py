"""The manifest of a search: all that a stored digest covers. No code is imported and nothing is computed again."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any

from search.driver.sealed import recorded_openings, scores_digest
from search.driver.verify.comparison import Check, check, differing
from search.plan.runs import RunFolder, stored_split
from search.plan.stored import StoredSearch
from search.report.models import checkpoint_of
from search.selection import Baselines, Ledger, Selection, study_digest
from search.study import stored_trials
from trainables.errors import counted
from trainables.files import as_path
from trainables.storage import AnyPath

Records = Mapping[str, Mapping[str, Any]]
"""The records of the openings in ``test.json``, by id."""
Entry = tuple[str, str, str | None]
"""A part of the records with the stored digest and that of its content, None if it is missing."""


def check_digests(folder: RunFolder) -> Iterator[Check]:
    """Yield the checks of all digests: split, choice, studies, scores, and the files and models of an opening."""
    yield Check(f"split.json: its digest {stored_split(folder).digest[:12]}")
    selection, records = stored_selection(folder), recorded_openings(folder)
    digest = selection and f"its digest {selection.digest[:12]}"
    yield Check(f"selection.json: {digest or 'the choice'}", is_there=selection is not None)
    with closing(StoredSearch(folder)) as stored:
        manifest = {
            "baselines.json, whitened.safetensors": _baselines(folder, selection),
            "the studies": _studies(stored, selection, records) if selection else iter(()),
            "test.json": (
                (f"Opening {name}", entry["digest"], scores_digest(entry)) for name, entry in records.items()
            ),
            "the scored models": chain.from_iterable(_models(stored, entry) for entry in records.values()),
            "test/": chain.from_iterable(_files(folder, entry) for entry in records.values()),
        }
        for what, entries in manifest.items():
            if first := next(entries, None):
                yield check(f"{what}: their digests", _changed(chain([first], entries)))


def check_warning(folder: RunFolder) -> Iterator[Check]:
    """Check that the warning about training images of an opened test set is the one in the frozen selection."""
    if selection := stored_selection(folder):
        name = folder.trained_on_opened.name
        copy = differing(name, folder.trained_on_opened_told(), selection.trained_on_opened)
        yield check(f"{name}: its copy in selection.json", copy)


def stored_selection(folder: RunFolder) -> Selection | None:
    """Load the frozen selection, whose digest must match; None before the choice."""
    return Selection.load(folder.selection) if folder.selection.exists() else None


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
        yield str(folder.baselines), selection.baselines, found.digest if found else None
    if found:
        yield str(folder.whitened), found.whitening_sha256, file_digest(folder.whitened)


def _studies(stored: StoredSearch, selection: Selection, records: Records) -> Iterator[Entry]:
    """Yield the studies of the choice, and the final trainings of this search in each opening."""
    scored = chain.from_iterable(record["studies"].items() for record in records.values())
    own = [(name, digest) for name, digest in scored if name.startswith(f"{stored.name}/")]
    for name, digest in (*selection.studies.items(), *own):
        trials = stored_trials(stored.storage, name) if stored.storage else []
        yield f"The study {name}", digest, study_digest(trials) if trials else None


def _models(stored: StoredSearch, record: Mapping[str, Any]) -> Iterator[Entry]:
    for model in record["scores"]:
        study, _, number = model["per_image"].removesuffix(".npz").rpartition("-")
        path = as_path(checkpoint_of(stored, study, stored.trial_of(study, int(number))))
        yield f"The scored model {path}", model["model_sha256"], file_digest(path)


def _files(folder: RunFolder, record: Mapping[str, Any]) -> Iterator[Entry]:
    place, there = folder.path / "test" / record["id"], {*(folder.path / "test").rglob("*")}
    for path, digest in ((place / name, digest) for name, digest in record["files"].items()):
        yield f"The file {path}", digest, file_digest(path if path in there else None)  # a name may lead elsewhere


def check_ledger(folder: RunFolder, selection: Selection) -> Iterator[Check]:
    """Check the lines of the ledger, and that it and ``test.json`` have the same openings of this selection."""
    ledger, records = Ledger(folder.openings), recorded_openings(folder)
    openings = ledger.of_selection(selection.digest)
    own, *users = [
        (f"{path}: {counted(count, 'line')} that the other ledger has", count)
        for path, count in ledger.lacking([opening.id for opening in openings]).items()
    ]
    lost = [f"{own[0]} cannot be found there; `holdout run` with the search's file copies it."] if own[1] else []
    yield check("the ledger: no line was changed, removed or moved", chain(ledger.broken_links(), lost))
    for text, count in users:  # the user may have used another machine meanwhile
        if count:
            yield Check(text, is_there=False)
    if not openings and not records:
        yield Check("the scores (the test is sealed)", is_there=False)
        return
    scored = {
        opening.id: {**opening.entry, "test_digest": selection.test_digest, "digest": opening.scores[selection.digest]}
        for opening in openings
        if selection.digest in opening.scores
    }
    keys = next(iter(scored.values()), {}).keys()
    found = {name: {key: value for key, value in record.items() if key in keys} for name, record in records.items()}
    what = f"the ledger: {counted(len(records), 'opening')}, each with its scores"
    yield check(what, differing("test.json openings ", found, scored))
    for opening in openings:
        if opening.id not in scored:
            yield Check(f"the scores of the opening of {opening.time}", is_there=False)

"""The models that are handed out: those of the rule, with the weights of their checkpoints."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing

from search.plan.stored import StoredSearch
from search.report.models.model_folders import chosen_model
from search.selection.selection import Selection
from search.verify.check import Check, as_json, check, differing
from search.verify.records import Records
from trainables.inference.model_folder import DESCRIPTION, WEIGHTS


def check_models(records: Records, selection: Selection) -> Iterator[Check]:
    """Of each loss the folder below ``models/``, where it is written."""
    for loss in selection.chosen:
        if records.plan.folder.model(loss).is_dir():
            yield check(f"models/{loss}: the model that is handed out", _problems(records, selection, loss))


def _problems(records: Records, selection: Selection, loss: str) -> Iterator[str]:
    folder = records.plan.folder.model(loss)
    with closing(StoredSearch(records.plan.folder)) as stored_search:
        model = chosen_model(stored_search, selection, loss)
    if model is None:
        yield f"models/{loss}: it is there, and no training for the test is."
        return
    digest = hashlib.sha256(model.weights).hexdigest()
    stored = json.loads((folder / DESCRIPTION).read_text())
    described = {**model.spec.to_json(), "weights_sha256": digest}
    yield from differing(f"models/{loss} {DESCRIPTION}", stored, as_json(described))
    found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    yield from differing(f"models/{loss} {WEIGHTS}", found, digest)

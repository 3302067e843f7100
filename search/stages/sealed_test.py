"""The test stage: the chosen models of one search, or of all searches of a campaign, are scored on the held-out
classes, once."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import methodcaller
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.plan.search import Search
from search.plan.trainings import training_of
from search.selection.openings import Ledger, Opening
from search.selection.scoring import Scoring
from search.selection.selection import Selection, study_digest
from search.stages.progress import StoreProgress
from search.study.names import Stage, short_study_name, study_name
from search.study.records import epochs_of
from trainables.data.store.digest import content_digest
from trainables.files import as_path, write_json, write_whole
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A search with its frozen selection, its trained models, and the results of earlier openings."""

    search: Search
    selection: Selection
    models: Sequence[tuple[str, FrozenTrial, TrialSpec, str]]
    results: Sequence[dict[str, Any]]


def score_test(
    searches: Sequence[Search],
    console: Console,
    *,
    opener: str,
    reason: str | None,
    score_all: Callable[[Sequence[Scoring]], list[Any]],
) -> None:
    """Open the test classes once for all ``searches``, and write each search's scores whole.

    The opening stands in the ledger, with ``opener``'s name, before the first image is read. Where the searches have
    different test classes, there is one opening for each set. One whose attempt died without scores is gone on with,
    and counts once.

    Raises:
        Mistakes: test images that cannot be read, or trained models that are gone.
    """
    candidates = [_candidate(search) for search in searches]
    openings = _openings(candidates, opener, reason or "its own test stage")
    for candidate in candidates:
        _score(candidate, openings[candidate.selection.search], console, score_all)


def _candidate(search: Search) -> _Candidate:
    plan = search.plan
    selection = Selection.load(plan.folder.selection)
    finals = [
        (loss, trial, training_of(plan, loss, Stage.TEST, trial))
        for loss in selection.chosen
        for trial in search.study(loss, Stage.TEST).trials()
        if trial.state == TrialState.COMPLETE
    ]
    path = plan.folder.test
    return _Candidate(
        search=search,
        selection=selection,
        models=[(loss, trial, spec, best_checkpoint(trial, spec.directory)) for loss, trial, spec in finals],
        results=json.loads(path.read_text())["openings"] if path.exists() else [],
    )


def _openings(candidates: Sequence[_Candidate], opener: str, reason: str) -> dict[str, Opening]:
    """Each search's opening: one that has no scores of it yet, else a new one for all that share its test classes."""
    ledger = Ledger(candidates[0].search.plan.folder.openings)
    openings: dict[str, Opening] = {}
    sealed: dict[str, dict[str, str]] = {}
    for candidate in candidates:
        selection = candidate.selection
        answered = {entry["id"] for entry in candidate.results}
        pending = [entry for entry in ledger.of_selection(selection.digest) if entry.id not in answered]
        if pending:
            openings[selection.search] = pending[0]
        else:
            sealed.setdefault(selection.test_digest, {})[selection.search] = selection.digest
    for test_digest, selections in sealed.items():
        opening = ledger.open(test_digest=test_digest, search=opener, selections=selections, reason=reason)
        openings |= dict.fromkeys(selections, opening)
    return openings


def _score(
    candidate: _Candidate, opening: Opening, console: Console, score_all: Callable[[Sequence[Scoring]], list[Any]]
) -> None:
    plan = candidate.search.plan
    images = plan.sealed_test.images(candidate.selection, opening)
    console.print(f"Opening the test classes for {plan.config.name} …", style="dim", highlight=False)
    store = images.make(StoreProgress(console))
    scored = score_all(
        [
            Scoring(
                loss=loss,
                configuration=trial.user_attrs["configuration"],
                seed=trial.user_attrs["seed"],
                fold=trial.user_attrs.get("fold"),
                spec=spec,
                checkpoint=checkpoint,
                images=images,
                metrics=plan.config.test_metrics,
                gallery=plan.split.gallery,
                per_image=f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
            )
            for loss, trial, spec, checkpoint in candidate.models
        ]
    )
    for scores, per_image in scored:
        file = plan.folder.path / "test" / opening.id / scores["per_image"]
        write_whole(file, methodcaller("write", per_image))
    record = {
        **asdict(opening),
        "finished": time.time(),
        "images_digest": content_digest(store),
        "studies": trained_digests(candidate.search, candidate.selection),
        "scores": [scores for scores, _ in scored],
    }
    record["digest"] = scores_digest(record)
    write_json(plan.folder.test, {"openings": [*candidate.results, record]})


def trained_digests(search: Search, selection: Selection) -> dict[str, str]:
    """The digests of the studies that hold the trainings for the test, by their names."""
    return {
        study_name(search.name, loss, Stage.TEST): study_digest(search.trials(loss, Stage.TEST))
        for loss in selection.chosen
    }


def scores_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of all that was written down of an opening."""
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def best_checkpoint(trial: FrozenTrial, directory: str) -> str:
    """Where the best model of a final training is.

    Raises:
        Mistakes: it is gone.
    """
    kept = [record["checkpoint"] for record in epochs_of(trial) if record["checkpoint"]]
    address = f"{directory}/{kept[-1]}"
    if not as_path(address).is_file():
        raise Mistakes(f"The trained model {address} is gone; restore it, or search under a new name.")
    return address

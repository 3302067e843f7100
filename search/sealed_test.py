"""The test stage: the chosen models are scored on the held-out classes, once."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.openings import Ledger, Opening
from search.plan import FINAL, course_name
from search.progress import StoreProgress
from search.scoring import Scoring
from search.search import Search
from search.selection import Selection
from search.study import epochs_of
from trainables.files import write_json
from trainables.mistakes import Mistakes


def score_test(search: Search, reason: str | None, score_all: Callable[[Sequence[Scoring]], list[Any]]) -> None:
    """Open the test classes and write all scores at once.

    The opening stands in the ledger before the first image is read. One whose attempt died without scores is gone
    on with, and counts once.

    Raises:
        Mistakes: test images that cannot be read, or trained models that are gone.
    """
    plan, folder = search.plan, search.plan.folder
    selection = Selection.load(folder.selection)
    models = [
        (loss, trial, plan.spec(loss, FINAL, trial))
        for loss in selection.chosen
        for trial in search.study(loss, FINAL).trials()
        if trial.state == TrialState.COMPLETE
    ]
    checkpoints = [_best_checkpoint(trial, Path(spec.directory)) for _, trial, spec in models]
    results = json.loads(folder.test.read_text()) if folder.test.exists() else {"openings": []}
    opening = _opening(search, selection, {entry["id"] for entry in results["openings"]}, reason)
    images = plan.sealed_test.recipe(selection, opening)
    search.console.print("Opening the test classes …", style="dim", highlight=False)
    images.open(StoreProgress(search.console))
    scores = score_all(
        [
            Scoring(
                loss=loss,
                configuration=trial.user_attrs["configuration"],
                spec=spec,
                checkpoint=str(checkpoint),
                images=images,
                metrics=plan.config.metrics.test,
                per_image=str(
                    (folder.path / "test" / opening.id / f"{course_name(loss, FINAL)}-{trial.number}.npz").resolve()
                ),
            )
            for (loss, trial, spec), checkpoint in zip(models, checkpoints, strict=True)
        ]
    )
    record = {**asdict(opening), "finished": time.time(), "scores": scores}
    write_json(folder.test, {**results, "openings": [*results["openings"], record]})


def _opening(search: Search, selection: Selection, answered: set[str], reason: str | None) -> Opening:
    ledger = Ledger(search.plan.folder.openings)
    for opening in ledger.of_selection(selection.digest):
        if opening.id not in answered:
            return opening
    return ledger.open(
        test_digest=selection.test_digest,
        search=selection.search,
        selection_digest=selection.digest,
        reason=reason or "the search's own test stage",
    )


def _best_checkpoint(trial: FrozenTrial, directory: Path) -> Path:
    places = [record["checkpoint"] for record in epochs_of(trial) if record["checkpoint"]]
    path = directory / places[-1]
    if not path.is_file():
        raise Mistakes(f"The trained model {path} is gone; restore it, or search under a new name.")
    return path

"""The test stage: chosen models are scored on the held-out classes, once."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from operator import methodcaller
from pathlib import Path
from threading import Thread
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.driver.progress_view import StoreProgress
from search.driver.stages import frozen_selection
from search.plan.plan import Plan, best_checkpoint, training_of
from search.plan.runs import RunFolder, stored_split
from search.plan.search import OpenedSearch
from search.selection import Ledger, Opening, Scoring, SealedTest, Selection, images_in, study_digest
from search.stages import Stage, short_study_name, study_name
from trainables.data import Dataset
from trainables.data.store.spec import StoreSpec
from trainables.files import read_json, write_json, write_whole
from trainables.mistakes import Mistakes, raise_if_any
from trainables.spec import TrialSpec

# Says which test images look damaged, while trainings run: else it would show when the test opens, after days.

logger = logging.getLogger(__name__)

LOOK_S = 600


class SealedImagesLook:
    """Looks at the test images of searches from outside, in a thread of its own.

    It begins when the first training can: sixty thousand files take seconds on a local disk, but minutes on a slow
    network, and nobody has to wait for what only the test needs. Nothing is decoded and nothing is opened.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all is said that is to be said, as long as a look may take."""
        self._thread.join(LOOK_S)

    def _run(self) -> None:
        first = {(plan.config.dataset.source, plan.split.test): plan for plan in reversed(self._plans)}
        for plan in reversed(first.values()):
            try:
                sentence = sealed(plan).damage(LOOK_S)
            except Exception as error:  # somebody's data set may raise anything, and trainings need none of this
                sentence = f"The images of test classes cannot be looked at ({type(error).__name__}: {error})."
            if sentence:
                logger.warning("%s: %s", plan.config.name, sentence)


# The test stage: the chosen models of one search, or of all searches of a campaign, are scored on the held-out
# classes, once.

GOES_ON = "The trainings are kept, and this opening counts once: when this is mended, the same command goes on."


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A search with its frozen selection, its trained models, and the results of earlier openings."""

    search: OpenedSearch
    selection: Selection
    models: Sequence[tuple[str, FrozenTrial, TrialSpec, str]]
    results: Sequence[dict[str, Any]]

    @property
    def configurations(self) -> int:
        """How many configurations are scored."""
        return len({(loss, trial.user_attrs["source_trial"]) for loss, trial, _, _ in self.models})


def sealed(plan: Plan) -> SealedTest:
    """Return the test classes of ``plan``, under their seal."""
    return SealedTest(
        dataset=plan.config.dataset.source, split=plan.split, short_side=plan.short_side, cache=plan.cache
    )


def score_test(
    searches: Sequence[OpenedSearch],
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
        Mistakes: test images that cannot be read, trained models that are gone or are not those of the frozen choice,
            or what was chosen from was changed since.
    """
    candidates = [_candidate(search) for search in searches]
    openings = _openings(candidates, opener, reason or "its own test stage")
    for candidate in candidates:
        _score(candidate, openings[candidate.selection.search], console, score_all)


def _candidate(search: OpenedSearch) -> _Candidate:
    plan = search.plan
    selection = frozen_selection(search)
    finals = [
        (loss, trial, training_of(plan, loss, Stage.TEST, trial))
        for loss in selection.chosen
        for trial in search.study(loss, Stage.TEST).trials()
        if trial.state == TrialState.COMPLETE
    ]
    raise_if_any(
        [
            f"Trial {trial.number} of {search.name}/{short_study_name(loss, Stage.TEST)} trained other parameters than "
            "were frozen with the choice; restore the study, or search under a new name."
            for loss, trial, _ in finals
            if not _is_frozen(selection, loss, trial)
        ]
    )
    path = plan.folder.test
    return _Candidate(
        search=search,
        selection=selection,
        models=[(loss, trial, spec, best_checkpoint(trial, spec.directory)) for loss, trial, spec in finals],
        results=read_json(path)["openings"] if path.exists() else [],
    )


def _is_frozen(selection: Selection, loss: str, trial: FrozenTrial) -> bool:
    numbers = [entry.number for entry in selection.configurations(loss) if entry.params == trial.params]
    return trial.user_attrs["source_trial"] in numbers


def _openings(candidates: Sequence[_Candidate], opener: str, reason: str) -> dict[str, Opening]:
    """Each search's opening: one that has no scores of it yet, else a new one for all that share its test classes."""
    ledger = Ledger(candidates[0].search.plan.folder.openings)
    openings: dict[str, Opening] = {}
    sealed: dict[tuple[str, Dataset], list[_Candidate]] = {}
    for candidate in candidates:
        selection = candidate.selection
        answered = {entry["id"] for entry in candidate.results}
        pending = [entry for entry in ledger.of_selection(selection.digest) if entry.id not in answered]
        if pending:
            openings[selection.search] = pending[0]
        else:
            # Data sets may give other images the same names, which shows when they are read and not before.
            dataset = candidate.search.config.dataset.source
            sealed.setdefault((selection.test_digest, dataset), []).append(candidate)
    for (test_digest, _), sharing in sealed.items():
        opening = ledger.open(
            test_digest=test_digest,
            search=opener,
            selections={entry.selection.search: entry.selection.digest for entry in sharing},
            configurations={entry.selection.search: entry.configurations for entry in sharing},
            reason=reason,
        )
        openings |= dict.fromkeys(opening.selections, opening)
    return openings


def _score(
    candidate: _Candidate, opening: Opening, console: Console, score_all: Callable[[Sequence[Scoring]], list[Any]]
) -> None:
    plan = candidate.search.plan
    images = sealed(plan).images(candidate.selection, opening)
    console.print(f"Opening the test classes for {plan.config.name} …", style="dim", highlight=False)
    with ExitStack() as held:
        try:
            store = held.enter_context(images.held(StoreProgress(console)))
        except Mistakes as error:
            raise Mistakes([*error.sentences, GOES_ON]) from error
        _score_held(candidate, opening, images, store, score_all)


def _score_held(
    candidate: _Candidate,
    opening: Opening,
    images: StoreSpec,
    store: Path,
    score_all: Callable[[Sequence[Scoring]], list[Any]],
) -> None:
    plan = candidate.search.plan
    ledger = Ledger(plan.folder.openings)
    opening = ledger.read(opening, images_in(store))
    if known := ledger.before(opening):
        logger.warning("%s: %s.", plan.config.name, known)
    scored = score_all(
        [
            Scoring(
                loss=loss,
                source_trial=trial.user_attrs["source_trial"],
                seed=trial.user_attrs["seed"],
                fold=trial.user_attrs.get("fold"),
                spec=spec,
                checkpoint=checkpoint,
                images=images,
                metrics=candidate.selection.test_metrics,
                # Half of the training images are no classes of the test that could be left out of its gallery.
                gallery=plan.split.gallery if plan.config.metrics.gallery == "validation" else None,
                per_image=f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
            )
            for loss, trial, spec, checkpoint in candidate.models
        ]
    )
    from search.selection import NAME, thumbnails_of

    thumbnails = thumbnails_of(store, candidate.selection, scored).to_bytes()
    folder = plan.folder.path / "test" / opening.id
    for name, content in [*chain.from_iterable(files.items() for _, files in scored), (NAME, thumbnails)]:
        write_whole(folder / name, methodcaller("write", content))
    record = {
        **without_images(opening),
        "finished": time.time(),
        "studies": trained_digests(candidate.search, candidate.selection),
        "scores": [scores for scores, _ in scored],
        "thumbnails_sha256": hashlib.sha256(thumbnails).hexdigest(),
    }
    record["digest"] = scores_digest(record)
    write_json(plan.folder.test, {"openings": [*candidate.results, record]})


def trained_digests(search: OpenedSearch, selection: Selection) -> dict[str, str]:
    """The digests of the studies that hold the trainings for the test, by their names."""
    return {
        study_name(search.name, loss, Stage.TEST): study_digest(search.trials(loss, Stage.TEST))
        for loss in selection.chosen
    }


def scores_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of all that was written down of an opening."""
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_images(opening: Opening) -> dict[str, Any]:
    """The opening for ``test.json``; the ledger has its images."""
    return {key: value for key, value in asdict(opening).items() if key != "images"}


def with_training_images(plan: Plan) -> Plan:
    """``plan`` with the digest of its decoded training images in its split.

    Raises:
        Mistakes: they are not those that the search, or the one that it begins with, was trained on.
    """
    from trainables.data.store.contents import named_digest

    digest = named_digest(_by_class(plan))
    name, begun = plan.config.name, plan.split.images
    if origin := plan.config.search.origin:
        name, begun = origin, begun or stored_split(RunFolder(plan.folder.runs, origin)).images
    if begun not in (None, digest):
        raise Mistakes(
            f"The images of the training classes are not those that {name} began with, although their names are; put "
            "them back, or give the search a new name."
        )
    return replace(plan, split=replace(plan.split, images=digest))


def note_opened_images(plan: Plan) -> str | None:
    """Write down, for a search that begins, how many of its classes hold images of a test set that was opened.

    Gives the sentence; None where there is none. What others open later was not known to who chose these classes.
    """
    from trainables.data.store.contents import fingerprints

    opened = Ledger(plan.folder.openings).opened_among(fingerprints(_by_class(plan)))
    if opened is None:
        return None
    sentence = f"training on images of an opened test set: {opened}"
    write_json(plan.folder.trained_on_opened, {"told": sentence})
    return sentence


def _by_class(plan: Plan) -> dict[str, list[str]]:
    from trainables.data.store.contents import digests_by_class, read_contents

    return digests_by_class(read_contents(plan.images.make()))

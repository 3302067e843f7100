"""The test stage, which scores the chosen models on the held-out classes once, and the image checks that precede it."""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.driver.by_vault import scores_of_vault, test_items
from search.driver.choice import unchanged_selection
from search.driver.progress_view import StoreProgress, phase
from search.driver.untrained import baseline_scorings
from search.plan.plan import Plan, best_checkpoint, training_of
from search.plan.records import Records
from search.plan.search import WritableRecords
from search.selection import (
    BaselineScoring,
    FailedScoring,
    ImageSet,
    Opening,
    Scored,
    ScoredBaseline,
    ScoredModel,
    ScoredOpening,
    Scoring,
    SealedTest,
    Selection,
    frozen_baselines,
    images_in,
    study_digest,
    write_openings,
)
from search.stages import Stage, short_study_name, study_name
from trainables.common.errors import Failure, InvalidInput, counted, listed, raise_if_any
from trainables.common.files import json_digest, write_json, write_whole
from trainables.data import Dataset
from trainables.data.store.contents import digests_by_class, read_contents
from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import TrialSpec

logger = logging.getLogger(__name__)

Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""A function that computes another of each argument, on workers (:meth:`search.engines.base.Engine.map`)."""

RESUMABLE = "The trainings are kept and this opening counts once; repair this and run the same command again."
CHECK_S = 600
"""Most seconds that the background check of the test images may take."""


FinalModel = tuple[str, FrozenTrial, TrialSpec, str]
"""A final training to score: its loss, its trial, the trial's training, and the path of its best checkpoint."""


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A search with its frozen selection and its trained models."""

    search: WritableRecords
    selection: Selection
    models: Sequence[FinalModel]

    @property
    def configurations(self) -> int:
        return len({(loss, trial.user_attrs["source_trial"]) for loss, trial, _, _ in self.models})

    @property
    def gpu(self) -> bool:
        return self.search.config.resources.gpus_per_trial > 0

    def scorings(self, images: StoreSpec) -> list[Scoring | BaselineScoring]:
        return test_scorings(self.search.plan, self.selection, self.models, images, gpu=self.gpu)


def sealed(plan: Plan) -> SealedTest:
    """Return the sealed test classes of ``plan``."""
    return SealedTest(
        dataset=plan.config.dataset.source, split=plan.split, short_side=plan.short_side, cache=plan.cache
    )


def score_test(
    searches: Sequence[WritableRecords], console: Console, *, opener: str, reason: str | None, run: Run
) -> None:
    """Open the test classes once for all ``searches`` and write the scores of each search to its ``test.json``.

    The opening is entered in the ledger under the name ``opener`` before the first image is read. Searches with
    different test classes get one opening per set of classes. An unscored opening is resumed before a new one starts,
    and counts once.

    Raises:
        InvalidInput: test images cannot be read, trained models are missing or are not those of the frozen choice, or a
            study or the baselines were changed after the choice.
    """
    candidates = [_candidate(search) for search in searches]
    _check_kept(candidates, console, run)
    openings = _openings(candidates, opener, reason)
    for candidate in candidates:
        search, opening = candidate.search, openings[candidate.selection.search]
        search.note_opening(opening.id)
        if search.split.vault:
            with phase(console, f"The vault scores {counted(len(candidate.models), 'model')} …"):
                scorings = candidate.scorings(test_items(search.plan))
                files, parts = scores_of_vault(search.plan, candidate.selection, scorings, run)
            write_scores(candidate, opening, files, **parts)
        else:
            _score(candidate, opening, console, run)


def _candidate(search: WritableRecords) -> _Candidate:
    plan = search.plan
    selection = unchanged_selection(search)
    finals = [
        (loss, trial)
        for loss in selection.chosen
        for trial in search.trials(loss, Stage.TEST)
        if trial.state == TrialState.COMPLETE
    ]
    raise_if_any(
        [
            f"Trial {trial.number} of {search.name}/{short_study_name(loss, Stage.TEST)} was trained with other "
            "parameters than those frozen with the choice; restore the study, or start a search with a new name."
            for loss, trial in finals
            if not _is_frozen(selection, loss, trial)
        ]
    )
    frozen_baselines(search.folder.baselines, search.folder.whitened, selection.baselines)  # raises before the opening
    return _Candidate(search=search, selection=selection, models=[final_model(plan, *of) for of in finals])


def final_model(plan: Plan, loss: str, trial: FrozenTrial) -> FinalModel:
    """Return the model of a final training; raise if its checkpoint is missing."""
    spec = training_of(plan, loss, Stage.TEST, trial)
    return loss, trial, spec, best_checkpoint(trial, spec.directory)


def _is_frozen(selection: Selection, loss: str, trial: FrozenTrial) -> bool:
    numbers = [entry.number for entry in selection.configurations(loss) if entry.params == trial.params]
    return trial.user_attrs["source_trial"] in numbers


def resumed_opening(search: Records, selection: Selection, reason: str | None) -> Opening | None:
    """Return the opening of a search that has no scores yet; None if there is none, so that a new one is needed.

    ``reason`` is that for another opening; None if the user has not asked for one.

    Raises:
        InvalidInput: a new opening is needed without a ``reason``: the scores of an earlier one, or its final
            trainings, were removed.
    """
    again = f"or open the test classes again with `holdout test {search.name} --again REASON`."
    openings = search.ledger.of_selection(selection.digest)
    answered = {scored.id for scored in search.openings}
    pending = [entry for entry in openings if selection.digest not in entry.scores and entry.id not in answered]
    trained = trained_digests(search, selection)
    for opening in pending:
        changed = [name for name, digest in trained.items() if opening.studies.get(name) != digest]
        if not changed:
            return opening
        if reason is None:
            raise InvalidInput(
                f"The final trainings of {' and '.join(changed)} are not those for which the test classes were opened "
                f"at {opening.time}; restore {search.folder.journal} from a copy, {again}"
            )
    lost = [entry for entry in openings if selection.digest in entry.scores and entry.id not in answered]
    if lost and reason is None:
        raise InvalidInput(
            f"{search.name} was scored after the opening of {lost[0].time}, but {search.folder.test} does not have the "
            f"scores; restore it from a copy, {again}"
        )
    return None


def scored_as(loss: str, trial: FrozenTrial) -> dict[str, Any]:
    """Return what identifies the model of a final training of ``loss`` in ``test.json``."""
    return {
        "loss": loss,
        "source_trial": trial.user_attrs["source_trial"],
        "seed": trial.user_attrs["seed"],
        "fold": trial.user_attrs.get("fold"),
        "per_image": f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
    }


def _check_kept(candidates: Sequence[_Candidate], console: Console, run: Run) -> None:
    """Raise, before the opening, if final models cannot be loaded for the test as they were trained."""
    from search.selection import kept_problem  # imports torch

    if without := [candidate.search.name for candidate in candidates if not candidate.models]:
        raise Failure(f"No final training of {listed(without)} succeeded; the test classes were not opened.")
    models = {
        f"{candidate.search.name}/{short_study_name(loss, Stage.TEST)} trial {trial.number}": (
            spec,
            path,
            candidate.gpu,
        )
        for candidate in candidates
        for loss, trial, spec, path in candidate.models
    }
    with phase(console, "Loading the final models as the test will …"):
        problems = run(kept_problem, [*models.values()])
    wrong = {name: problem for name, problem in zip(models, problems, strict=True) if problem}
    if wrong:
        first = next(iter(wrong))
        raise Failure(
            f"{len(wrong)} of {counted(len(models), 'final model')} cannot be tested, first {first}: "
            f"{wrong[first].rstrip('.')}. The test classes were not opened. Correct the code and run the same command "
            "again, or search under a new name."
        )


def _openings(candidates: Sequence[_Candidate], opener: str, reason: str | None) -> dict[str, Opening]:
    """Return the opening of each search: its unscored one, else a new one shared by all with the same test classes."""
    ledger = candidates[0].search.ledger
    openings: dict[str, Opening] = {}
    unopened: dict[tuple[str, Dataset], list[_Candidate]] = {}
    for candidate in candidates:
        selection = candidate.selection
        if opening := resumed_opening(candidate.search, selection, reason):
            openings[selection.search] = opening
        else:
            # Two data sets may use the same names for different images, which shows only when the images are read.
            dataset = candidate.search.config.dataset.source
            unopened.setdefault((selection.test_digest, dataset), []).append(candidate)
    for (test_digest, _), sharing in unopened.items():
        opening = ledger.open(
            test_digest=test_digest,
            search=opener,
            selections={entry.selection.search: entry.selection.digest for entry in sharing},
            configurations={entry.selection.search: entry.configurations for entry in sharing},
            studies=dict(chain.from_iterable(trained_digests(of.search, of.selection).items() for of in sharing)),
            reason=reason or "its own test stage",
        )
        openings |= dict.fromkeys(opening.selections, opening)
    return openings


def _score(candidate: _Candidate, opening: Opening, console: Console, run: Run) -> None:
    from search.selection import NAME, score, thumbnails_of  # imports torch

    plan, ledger = candidate.search.plan, candidate.search.ledger
    images = sealed(plan).images(candidate.selection, opening)
    console.print(f"Opening the test classes for {plan.config.name} …", style="dim", highlight=False)
    with ExitStack() as held:
        try:
            store = held.enter_context(images.held(StoreProgress(console, images.dataset.noun)))
        except InvalidInput as error:
            raise InvalidInput([*error.sentences, RESUMABLE]) from error
        found = images_in(store)
        overlap = _overlap(plan, store, found)
        opening = ledger.read(opening, found)
        if known := ledger.before(opening):
            logger.warning("%s: %s.", plan.config.name, known)
        entries: list[Scored] = [*chain.from_iterable(run(score, candidate.scorings(images)))]
        scored = [entry for entry in entries if isinstance(entry.record, ScoredModel)]
        baselines = [entry.record for entry in entries if isinstance(entry.record, ScoredBaseline)]
        failed = [entry.record for entry in entries if isinstance(entry.record, FailedScoring)]
        repairable = {entry.record.per_image for entry in entries if entry.is_repairable}
        if first := [record for record in failed if record.per_image in repairable] or ([] if scored else failed):
            what = "; ".join(f"{record.per_image.removesuffix('.npz')}: {record.reason}" for record in first)
            raise Failure(f"{plan.config.name} cannot be scored on the test classes ({what}). {RESUMABLE}")
        written = {NAME: thumbnails_of(store, images.dataset, candidate.selection, scored).to_bytes()}
    for entry in entries:
        written |= entry.files
    write_scores(
        candidate,
        opening,
        written,
        finished=time.time(),
        overlap=overlap,
        copies=found.copies,
        scores=[entry.record.content() for entry in scored],
        baselines=[record.content() for record in baselines],
        failed=[record.content() for record in failed],
    )


def test_scorings(
    plan: Plan, selection: Selection, models: Sequence[FinalModel], images: StoreSpec, *, gpu: bool
) -> list[Scoring | BaselineScoring]:
    """Return the requests to score the final ``models`` and the frozen baselines on the test ``images``."""
    scorings = [
        Scoring(
            **scored_as(loss, trial),
            spec=spec,
            checkpoint=checkpoint,
            images=images,
            metrics=selection.test_metrics,
            gpu=gpu,
        )
        for loss, trial, spec, checkpoint in models
    ]
    return [*scorings, *baseline_scorings(plan, selection, images, gpu=gpu)]


def _overlap(plan: Plan, store: Path, found: ImageSet) -> int:
    """Return how many test images of ``found`` are training images, too; raise if the search file allows fewer."""
    training = images_in(plan.images.make())
    overlap, allowed = int(found.known_images(training).sum()), plan.config.split.allow_overlap
    if overlap > allowed:
        test, known = read_contents(store), {f"{digest:016x}" for digest in training.digests_N.tolist()}
        keys = [key for key, digest in zip(test.image_keys, test.image_digests, strict=True) if digest in known]
        raise InvalidInput(
            f"{overlap} of the {len(found)} test {plan.images.dataset.noun} also train or validate ({listed(keys)}), "
            f"and split.allow_overlap is {allowed}: remove them and search under a new name, or set it to {overlap} "
            "and run the same command again, which scores them and states it in every table."
        )
    return overlap


def write_scores(candidate: _Candidate, opening: Opening, files: Mapping[str, bytes], **parts: Any) -> None:
    """Write the ``files`` of an opening and its record in ``test.json``, and note in the ledger that it has scores."""
    search = candidate.search
    for name, content in files.items():
        write_whole(search.folder.path / "test" / opening.id / name, methodcaller("write", content))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    record = ScoredOpening.of(opening, **{name: part for name, part in parts.items() if part != []}, files=digests)
    write_openings(search.folder.test, [*search.openings, record])
    search.ledger.score(opening, candidate.selection.digest, record.digest)


def catch_up(search: Records) -> None:
    """Write what a killed driver left out of the ledgers: lines of one of them, and that a search has its scores."""
    ledger, recorded = search.ledger, {scored.id: scored for scored in search.openings}
    if search.folder.openings.exists() or recorded:
        ledger.catch_up(recorded)
    if recorded and (selection := search.selection):
        for opening in ledger.of_selection(selection.digest):
            if opening.id in recorded and selection.digest not in opening.scores:
                ledger.score(opening, selection.digest, recorded[opening.id].digest)


def trained_digests(search: Records, selection: Selection) -> dict[str, str]:
    """Return the digests of the studies of the final trainings, by study name."""
    return {
        study_name(search.name, loss, Stage.TEST): study_digest(search.trials(loss, Stage.TEST))
        for loss in selection.chosen
    }


# Checks of the images when a search starts


def with_training_images(plan: Plan) -> Plan:
    """Return ``plan`` with the digest of its training images; raise if the search did not begin with these."""
    digest = digest_of_images(plan.images.make())
    if plan.split.images not in (None, digest):
        name = plan.predecessor or plan.config.name
        raise InvalidInput(
            f"The training {plan.images.dataset.noun} differ from those that {name} started with: some were added, "
            "removed or changed; restore them, or give the search a new name."
        )
    return replace(plan, split=replace(plan.split, images=digest))


def digest_of_images(store: Path) -> str:
    """Return the digest of the decoded training images in ``store``, by their classes."""
    return json_digest(digests_by_class(read_contents(store)))


def copies_among_classes(plan: Plan) -> str | None:
    """Return a sentence on training images whose pixels are in another class, too; None without any."""
    images, noun = read_contents(plan.images.make()), plan.images.dataset.noun
    classes = Counter(digest for digest, _ in {*zip(images.image_digests, images.labels_N.tolist(), strict=True)})
    keys = zip(images.image_keys, images.image_digests, strict=True)
    copies = [key for key, digest in keys if classes[digest] > 1]
    share = f"{len(copies)} of the {len(images.image_keys)} training and validation {noun} are in several classes"
    why = "one that trains and validates makes validation too high, and any other has two labels; remove them"
    return f"{share} ({listed(copies)}): {why}" if copies else None


def note_opened_images(plan: Plan) -> str | None:
    """Record how many training classes of a new search contain images of an already opened test set.

    Return the sentence that is recorded, or None if there is no overlap. Later openings do not count: they could not
    have influenced the choice of these classes. So those that count are recorded, too, whatever the clock says.
    """
    ledger, training = Records(plan.folder, plan).ledger, images_in(plan.images.make())
    openings = [entry for entry in ledger.openings() if entry.images]
    sentence = ledger.opened_among_training(training, openings)
    if sentence:  # with their lines in the runs folder, a copy of it can be verified elsewhere
        ledger.catch_up(entry.id for entry, *_ in ledger.sharing(training, openings))
    write_json(plan.folder.trained_on_opened, {"warning": sentence, "openings": [entry.id for entry in openings]})
    return sentence


def check_sealed_images(plans: Sequence[Plan]) -> None:
    """Warn of damaged test images, while trials train instead of days later at the test.

    60,000 files take seconds on a local disk but minutes on a slow network. Only file headers and ends are read:
    nothing is decoded, and the test set is not opened.
    """
    first = {(plan.config.dataset.source, plan.split.test): plan for plan in reversed(plans)}
    for plan in reversed(first.values()):
        try:
            sentence = sealed(plan).damage(CHECK_S)
        except Exception as error:  # a user-defined data set may raise anything; training does not need this
            sentence = f"The test classes cannot be checked ({type(error).__name__}: {error})."
        if sentence:
            logger.warning("%s: %s", plan.config.name, sentence)

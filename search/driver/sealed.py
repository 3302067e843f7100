"""The test stage, which scores the chosen models on the held-out classes once, here or by a vault."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.driver.choice import study_digests, unchanged_selection
from search.driver.inputs import sealed_images, untrained_spec
from search.driver.progress_view import StoreProgress, phase, say
from search.records import (
    BaselineScoring,
    FailedScoring,
    ImageSet,
    Opening,
    Scored,
    ScoredBaseline,
    ScoredModel,
    ScoredOpening,
    Scoring,
    Selection,
    frozen_baselines,
    images_in,
)
from search.records.plan import Plan, best_checkpoint, training_of
from search.records.records import Records
from search.records.writable import WritableRecords
from search.stages import Stage, short_study_name
from search.vault.held import HeldItems
from search.vault.protocol import EMBEDDINGS, SentModel, ask, content_of
from trainables.common.errors import Failure, InvalidInput, counted, listed, raise_if_any
from trainables.common.files import digest_of, json_digest, json_text, reading, write_json, write_whole
from trainables.data import Dataset
from trainables.data.store.contents import read_contents
from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import TrialSpec

logger = logging.getLogger(__name__)

Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""A function that computes another of each argument, on workers (:meth:`search.engines.base.Engine.map`)."""

Scorings = Sequence[Scoring | BaselineScoring]
Results = tuple[dict[str, bytes], dict[str, Any]]
"""The files of an opening, by name, and the parts of its record that its entry in the ledger does not have."""
RESUMABLE = "The trainings are kept and this opening counts once; repair this and run the same command again."

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


def score_test(
    searches: Sequence[WritableRecords], console: Console, *, opener: str, reason: str | None, run: Run
) -> None:
    """Open the test classes once for all ``searches`` and write the scores of each search to its ``test.json``.

    The opening is entered in the ledger under the name ``opener`` before the first image is read, one for each set of
    test classes. An unscored opening is resumed before a new one starts, and counts once.

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
                results = scores_of_vault(search.plan, candidate.selection, scorings, run)
        else:
            results = _scores(candidate, opening, console, run)
        _write_scores(candidate, opening, *results)


def _candidate(search: WritableRecords) -> _Candidate:
    plan = search.plan
    selection = unchanged_selection(search)
    trials = [(loss, trial) for loss in selection.chosen for trial in search.trials(loss, Stage.TEST)]
    finals = [(loss, trial) for loss, trial in trials if trial.state == TrialState.COMPLETE]
    frozen = {(loss, of.number): of.params for loss in selection.chosen for of in selection.configurations(loss)}
    raise_if_any(
        [
            f"Trial {trial.number} of {search.name}/{short_study_name(loss, Stage.TEST)} was trained with other "
            "parameters than those frozen with the choice; restore the study, or start a search with a new name."
            for loss, trial in finals
            if frozen.get((loss, trial.user_attrs["source_trial"])) != trial.params
        ]
    )
    frozen_baselines(search.folder.baselines, search.folder.whitened, selection.baselines)  # raises before the opening
    return _Candidate(search=search, selection=selection, models=[final_model(plan, *of) for of in finals])


def final_model(plan: Plan, loss: str, trial: FrozenTrial) -> FinalModel:
    """Return the model of a final training; raise if its checkpoint is missing."""
    spec = training_of(plan, loss, Stage.TEST, trial)
    return loss, trial, spec, best_checkpoint(trial, spec.directory)


def resumed_opening(search: Records, selection: Selection, reason: str | None) -> Opening | None:
    """Return the opening of a search that has no scores yet; None if a new one is needed.

    Raises:
        InvalidInput: the scores of an earlier opening, or its final trainings, were removed, and the user has given no
            ``reason`` for another one.
    """
    again = f"or open the test classes again with `holdout test {search.name} --again REASON`."
    openings = search.ledger.of_selection(selection.digest)
    answered = {scored.id for scored in search.openings}
    pending = [entry for entry in openings if selection.digest not in entry.scores and entry.id not in answered]
    trained = study_digests(search, selection.chosen, (Stage.TEST,))
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
    """Return the entries that identify the model of a final training in ``test.json``."""
    return {
        "loss": loss,
        "source_trial": trial.user_attrs["source_trial"],
        "seed": trial.user_attrs["seed"],
        "fold": trial.user_attrs.get("fold"),
        "per_image": f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
    }


def _check_kept(candidates: Sequence[_Candidate], console: Console, run: Run) -> None:
    """Raise, before the opening, if final models cannot be loaded for the test as they were trained."""
    from search.records import kept_problem  # imports torch

    if without := [candidate.search.name for candidate in candidates if not candidate.models]:
        raise Failure(f"No final training of {listed(without)} succeeded; the test classes were not opened.")
    models = {
        f"{of.search.name}/{short_study_name(loss, Stage.TEST)} trial {trial.number}": (spec, path, of.gpu)
        for of in candidates
        for loss, trial, spec, path in of.models
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
            studies={
                name: digest
                for entry in sharing
                for name, digest in study_digests(entry.search, entry.selection.chosen, (Stage.TEST,)).items()
            },
            reason=reason or "its own test stage",
        )
        openings |= dict.fromkeys(opening.selections, opening)
    return openings


def _scores(candidate: _Candidate, opening: Opening, console: Console, run: Run) -> Results:
    """Open the test classes here and score the final models and the networks without training."""
    from search.records import THUMBNAILS, score, thumbnails_of  # imports torch

    plan, ledger = candidate.search.plan, candidate.search.ledger
    images = sealed_images(plan, candidate.selection, opening)
    say(console, [f"Opening the test classes for {plan.config.name} …"])
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
        written = {THUMBNAILS: thumbnails_of(store, images.dataset, candidate.selection, scored).to_bytes()}
    for entry in entries:
        written |= entry.files
    return written, {
        "finished": time.time(),
        "overlap": overlap,
        "copies": found.copies,
        "scores": [entry.record.content() for entry in scored],
        "baselines": [record.content() for record in baselines],
        "failed": [record.content() for record in failed],
    }


def test_scorings(
    plan: Plan, selection: Selection, models: Sequence[FinalModel], images: StoreSpec, *, gpu: bool
) -> list[Scoring | BaselineScoring]:
    """Return the requests to score the final ``models`` and the frozen baselines; raise if their files changed."""
    common: dict[str, Any] = {"images": images, "metrics": selection.test_metrics, "gpu": gpu}
    scorings: list[Scoring | BaselineScoring] = [
        Scoring(**scored_as(loss, trial), spec=spec, checkpoint=checkpoint, **common)
        for loss, trial, spec, checkpoint in models
    ]
    if frozen := frozen_baselines(plan.folder.baselines, plan.folder.whitened, selection.baselines):
        spec, network, whitening = untrained_spec(plan), frozen[0].network, frozen[1]
        scorings.append(BaselineScoring(spec=spec, network=network, whitening=whitening, **common))
    return scorings


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


def _write_scores(
    candidate: _Candidate, opening: Opening, files: Mapping[str, bytes], parts: Mapping[str, Any]
) -> None:
    """Write the ``files`` of an opening and its record in ``test.json``, and note in the ledger that it has scores."""
    search = candidate.search
    for name, content in files.items():
        write_whole(search.folder.path / "test" / opening.id / name, methodcaller("write", content))
    digests = {name: digest_of(content) for name, content in files.items()}
    record = ScoredOpening.of(opening, **{name: part for name, part in parts.items() if part != []}, files=digests)
    openings = [scored.content() for scored in (*search.openings, record)]
    write_json(search.folder.test, {"openings": openings})
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


# The test of a search whose test classes a vault has: one request with the frozen models, and one signed answer.

ANSWER = "vault.json"
"""The signed answer, beside the results of the models."""


def test_items(plan: Plan) -> StoreSpec:
    """Return the test items that a vault hands out without labels; those of the training half if it keeps them."""
    folder = plan.config.final.vault_items
    return plan.images if folder is None else HeldItems(vault=folder).store(plan.short_side, plan.cache)


def models_to_send(scorings: Scorings, run: Run, *, labels_only: bool) -> list[SentModel]:
    """Return the models of ``scorings``, or what they ``run`` on workers to give for :func:`test_items`."""
    from search.records import embeddings_of  # imports torch
    from search.vault.models import models_of

    if not labels_only:
        return [model for scoring in scorings for model in models_of(scoring)]
    found = run(embeddings_of, scorings)
    return [SentModel(row=row, form=EMBEDDINGS, files=(file,)) for entries in found for row, file in entries]


def scores_of_vault(plan: Plan, selection: Selection, scorings: Scorings, run: Run) -> Results:
    """Let the vault score the final models and the networks without training; raise if it refuses or scores none."""
    vault, name = dict(plan.split.vault), plan.config.name
    models = models_to_send(scorings, run, labels_only=vault["labels_only"] == "True")
    training = images_in(plan.images.make()).to_bytes()
    head = {
        "verb": "open",
        "selection": selection.to_json(),
        "models": [model.to_json() for model in models],
        "training": digest_of(training),
        "search": name,
        "allow_overlap": plan.config.split.allow_overlap,
    }
    blobs = [training, *(file for model in models for file in model.files)]
    try:
        signed, sent = ask(str(plan.config.final.vault), head, blobs)
    except InvalidInput as error:
        raise InvalidInput([*error.sentences, "The trainings are kept; run the same command again."]) from error
    answer = content_of(signed, vault["key"])
    asked = {"selection": selection.digest, "models": json_digest(head["models"]), "training": head["training"]}
    if any(answer.get(name) != digest for name, digest in asked.items()):
        raise Failure("The vault's answer is that to another request; run the same command again.")
    with reading("The vault's answer", "ask its owner"):
        parts = parts_of(answer)
        files = {file: sent[digest] for file, digest in files_of(answer).items()}
    if not parts["scores"]:
        raise Failure(f"The vault could not score any final model of {name}: {parts['failed'][0]['reason']}")
    return {ANSWER: json_text(signed).encode(), **files}, parts


def parts_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of an opening's record that are in the content of a vault's ``answer``."""
    found: dict[str, list[dict[str, Any]]] = {"scores": [], "baselines": [], "failed": []}
    for row, entry in zip(answer["rows"], answer["scores"], strict=True):
        if "reason" in entry:
            named = {"loss": row["name"], "seed": None, "per_image": row["per_image"]} if "name" in row else row
            found["failed"].append({**named, **entry})
        else:
            found["baselines" if "name" in row else "scores"].append({**row, **entry})
    said = {name: answer[name] for name in ("key", "number", "of", "labels_only", "isolated")}
    return {**{name: answer[name] for name in ("finished", "overlap", "copies")}, **found, "vault": said}


def files_of(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the results of each model that was scored, by their name in the record."""
    return {row["per_image"]: digest for row, digest in zip(answer["rows"], answer["files"], strict=True) if digest}

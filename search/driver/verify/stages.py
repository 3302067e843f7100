"""Checks of the split, of the choice, and of the stages whose trials follow from earlier stages."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from search.driver.sealed_test import opened_among_training
from search.driver.stages import confirm_stages, final_stage, noise_stage, selection_of
from search.driver.verify.records import Check, Records, as_json, check, differing, shown
from search.plan.plan import Plan
from search.plan.runs import RunFolder, campaign_of
from search.plan.search import OpenedSearch
from search.selection import ImageSet, Ledger, Selection, frozen_baselines, images_in
from search.stages import Stage
from search.study import QueuedStage, StorageCopy
from trainables.data.store.spec import StoreSpec
from trainables.files import read_json, reading
from trainables.mistakes import Mistakes, counted


def check_split(plan: Plan) -> Iterator[Check]:
    """Check that the stored split follows from its rule, the classes and the digest of the training images."""
    if not plan.folder.split.exists():
        yield Check("split.json", f"split.json: nothing is stored, but the split is {plan.split.digest[:12]}.")
        return
    stored = json.loads(plan.folder.split.read_text())
    yield check(
        f"split.json: the split {plan.split.digest[:12]}, from its rule and the training images",
        differing("split.json", stored, as_json(plan.split.to_json())),
    )


def with_images(plan: Plan) -> tuple[Plan, ImageSet]:
    """Return ``plan`` with the digest of the training images, decoded again, in its split, and these images."""
    from trainables.data.store.contents import digests_by_class, named_digest, read_contents

    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as cache:
        store = decoded_anew(plan.images, cache)
        found, images = named_digest(digests_by_class(read_contents(store))), images_in(store)
    return replace(plan, split=replace(plan.split, images=found)), images


def decoded_anew(images: StoreSpec, folder: str) -> Path:
    """Build a new store of ``images`` in ``folder``: the cached store may be of an earlier state of the files."""
    return replace(images, cache=folder).make()


def check_trained_on_opened(folder: RunFolder, training: ImageSet) -> Iterator[Check]:
    """Check the record of training images of an opened test set against the ledger and the selection."""
    path = folder.trained_on_opened
    if not path.exists():
        yield Check(path.name, f"{path.name}: nothing is stored, but the search was started.")
        return
    told, ledger = folder.trained_on_opened_told(), Ledger(folder.openings)
    with reading(path):
        counted = set(read_json(path)["openings"])
    then = [entry for entry in ledger.openings() if entry.id in counted]
    yield check(
        f"{path.name}: the openings in the ledger",
        differing(path.name, told, opened_among_training(ledger, training, then)),
    )
    if (selection := stored_selection(folder)) is not None:
        yield check_warning(folder, selection)


def check_warning(folder: RunFolder, selection: Selection) -> Check:
    """Check that the warning about training images of an opened test set is the one in the frozen selection."""
    name, told = folder.trained_on_opened.name, folder.trained_on_opened_told()
    return check(f"{name}: its copy in selection.json", differing(name, told, selection.trained_on_opened))


def check_baselines(folder: RunFolder, selection: Selection) -> Iterator[Check]:
    """Check the scores of the networks without training, and the whitening, by the digests frozen with the choice."""
    if selection.baselines is None:
        return
    problem = None
    try:
        frozen_baselines(folder.baselines, folder.whitened, selection.baselines)
    except Mistakes as mistakes:
        problem = mistakes.sentences[0]
    yield Check(f"{folder.baselines.name}: its digest, from selection.json", problem)


def check_noise_trials(records: Records) -> Iterator[Check]:
    """Check that the noise trials are those that the file asks for."""
    yield from _check_stage(records, Stage.NOISE, lambda search: [noise_stage(search)])


def check_confirmations(records: Records) -> Iterator[Check]:
    """Check that the finalists follow from the search, and that each has the seeds that the rule gives it."""
    if records.search.is_done(Stage.SEARCH):
        yield from _check_stage(records, Stage.SELECT, lambda search: confirm_stages([search]))


def stored_selection(folder: RunFolder) -> Selection | None:
    """Return the frozen selection; None before the choice.

    Raises:
        Mistakes: its digest does not match.
    """
    return Selection.load(folder.selection) if folder.selection.exists() else None


def check_choice(records: Records) -> Iterator[Check]:
    """Check the finalists, the choice, its reasons and the digests of the studies."""
    folder, losses = records.plan.folder, records.plan.config.loss_names
    if not folder.selection.exists():
        name, trained = records.plan.config.name, any(records.search.trials(loss, Stage.TEST) for loss in losses)
        problem = f"selection.json: nothing is stored, but {name} has final trainings." if trained else None
        yield Check("selection.json: the choice", problem, is_there=False)
        return
    yield check("selection.json: finalists and choice, by the rule from the studies", _choice_problems(records))


def _choice_problems(records: Records) -> Iterator[str]:
    search, folder = records.search, records.plan.folder
    for loss in records.plan.config.loss_names:
        budget, trials = records.plan.budget(loss), search.trials(loss, Stage.SEARCH)
        if not budget.done(trials):
            yield (
                f"{records.name_of(loss, Stage.SEARCH)}: {len(trials)} trials are stored and {budget.most} were "
                "planned, but the choice is frozen."
            )
    stored = Selection.load(folder.selection)
    # The table of a campaign may change after the choice, so the frozen one is used; the digest protects it.
    of_campaign = campaign_of(folder.runs, folder.name) is not None
    anew = replace(
        selection_of(search, stored.family if of_campaign else None),
        id=stored.id,
        trained_on_opened=stored.trained_on_opened,  # checked before
    )
    yield from differing("selection.json", as_json(stored.to_json()), as_json(anew.to_json()))


def check_final_trainings(records: Records, selection: Selection) -> Iterator[Check]:
    """Check that the final trainings are those of the frozen choice, with the seeds that follow from the file."""
    yield from _check_stage(records, Stage.TEST, lambda search: [final_stage(search, selection)])


# Replay of a stage


class Wanted(NamedTuple):
    """A trial that follows from the records: its user attributes and its parameters."""

    attributes: Mapping[str, Any]
    params: Mapping[str, Any]


def _check_stage(
    records: Records, stage: Stage, rounds: Callable[[OpenedSearch], Iterable[QueuedStage]]
) -> Iterator[Check]:
    """Check each study of ``stage`` against the trials that ``rounds`` enqueue, if the stage has begun."""
    names = {records.name_of(loss, stage): loss for loss in records.losses(stage)}
    stored = {name: records.search.trials(loss, stage) for name, loss in names.items()}
    if not any(stored.values()):
        return
    replayed = _replayed(records.search_without(names), stored, rounds)
    # A trial missing from one study stops the replay of all, so incomplete studies are checked first.
    for name, wanted in sorted(replayed.items(), key=lambda entry: _is_whole(stored[entry[0]], entry[1])):
        yield check(
            f"{name}: {counted(len(wanted), 'trial')}, as they follow from the stage before",
            _enqueued_problems(name, stored[name], wanted),
        )


def _replayed(
    search: OpenedSearch,
    stored: Mapping[str, Sequence[FrozenTrial]],
    rounds: Callable[[OpenedSearch], Iterable[QueuedStage]],
) -> dict[str, list[Wanted]]:
    """Return the trials that each study enqueues, replaying each round with the results of the stored trials.

    The replay ends at the first round with an unfinished trial.
    """
    assert isinstance(search.storage, StorageCopy), "replaying must not write to the stored studies"
    wanted: dict[str, list[Wanted]] = {name: [] for name in stored}
    for queued in rounds(search):
        ended = True
        for name, study in ((entry.study.name, entry.study) for entry in queued.studies):
            for trial in [entry for entry in study.trials() if entry.state == TrialState.WAITING]:
                wanted[name].append(Wanted(trial.user_attrs, trial.system_attrs["fixed_params"]))
                answer = next(iter(_answers(stored[name], trial.user_attrs)), None)
                if answer is None or not answer.state.is_finished():
                    ended = False
                else:
                    search.storage.answer(name, trial.number, answer)
        if not ended:
            break
    return wanted


def _answers(stored: Sequence[FrozenTrial], attributes: Mapping[str, Any]) -> list[FrozenTrial]:
    return [trial for trial in stored if attributes.items() <= trial.user_attrs.items()]


def _is_whole(stored: Sequence[FrozenTrial], wanted: Sequence[Wanted]) -> bool:
    return all(len(_answers(stored, entry.attributes)) == 1 for entry in wanted)


def _enqueued_problems(name: str, stored: Sequence[FrozenTrial], wanted: Sequence[Wanted]) -> Iterator[str]:
    """Yield the wanted trials that are not stored exactly once, or with other parameters, and unexpected seeds.

    Other stored trials are accepted: trials added to the search since may have changed the finalists.
    """
    for entry in wanted:
        answers = _answers(stored, entry.attributes)
        if len(answers) != 1:
            yield (
                f"{name}: {len(answers)} trials are stored with {shown(entry.attributes)}, but exactly one follows "
                "from the stage before."
            )
        for trial in answers:
            what = f"{name} trial {trial.number}: the enqueued parameters"
            yield from differing(what, trial.system_attrs.get("fixed_params"), entry.params)
            if trial.state != TrialState.WAITING:
                yield from differing(what, trial.params, entry.params)
    seeds = {entry.attributes["seed"] for entry in wanted}
    for trial in stored:
        seed = trial.user_attrs["seed"]
        if seed not in seeds:
            yield f"{name} trial {trial.number}: its seed {seed} is not one of {sorted(seeds)}."

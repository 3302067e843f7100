"""The stages whose trials follow from those of the stage before: noise, audit, confirmation, final trainings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from search.plan.search import Search
from search.selection.selection import Selection
from search.stages.queued_stages import audit_stage, confirm_stages, final_stage, noise_stage
from search.study.names import Stage
from search.study.storage.copy import StorageCopy
from search.study.trial_queue import QueuedStage
from search.verify.check import Check, check, differing, shown
from search.verify.records import Records


class Wanted(NamedTuple):
    """A trial that follows from the stage before: its user attributes, and its parameters."""

    attributes: Mapping[str, Any]
    params: Mapping[str, Any]


def check_noise_trials(records: Records) -> Iterator[Check]:
    """The noise stage's trials are those that the file asks for."""
    yield from _check_stage(records, Stage.NOISE, lambda search: [noise_stage(search)])


def check_audited_trials(records: Records) -> Iterator[Check]:
    """The pruned trials that are trained to their end are those that the file asks for."""
    yield from _check_stage(records, Stage.AUDIT, lambda search: [audit_stage(search)])


def check_confirmations(records: Records) -> Iterator[Check]:
    """The confirmations are those of the finalists that follow from the search, with the seeds that follow."""
    if records.search.is_done(Stage.SEARCH):
        yield from _check_stage(records, Stage.SELECT, lambda search: confirm_stages([search]))


def check_final_trainings(records: Records, selection: Selection) -> Iterator[Check]:
    """The trainings for the test are those of the frozen choice, with the seeds that follow."""
    yield from _check_stage(records, Stage.TEST, lambda search: [final_stage(search, selection)])


def _check_stage(records: Records, stage: Stage, rounds: Callable[[Search], Iterable[QueuedStage]]) -> Iterator[Check]:
    names = {records.name_of(loss, stage): loss for loss in records.losses(stage)}
    stored = {name: records.search.trials(loss, stage) for name, loss in names.items()}
    if not any(stored.values()):
        return
    replayed = _replayed(records.search_without(names), stored, rounds)
    # Where one study lacks a trial, the next round of none can be told.
    for name, wanted in sorted(replayed.items(), key=lambda entry: _is_whole(stored[entry[0]], entry[1])):
        yield check(
            f"{name}: {len(wanted)} trials, which follow from the stage before", _problems(name, stored[name], wanted)
        )


def _replayed(
    search: Search, stored: Mapping[str, Sequence[FrozenTrial]], rounds: Callable[[Search], Iterable[QueuedStage]]
) -> dict[str, list[Wanted]]:
    """What is enqueued in each study, round by round, where what was enqueued ends as the stored trials did.

    A round that has not ended is the last one.
    """
    assert isinstance(search.storage, StorageCopy), "a storage that can be written to"
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


def _problems(name: str, stored: Sequence[FrozenTrial], wanted: Sequence[Wanted]) -> Iterator[str]:
    """What is wanted is there once, and nothing has a seed of its own; more was wanted if trials were added since."""
    for entry in wanted:
        answers = _answers(stored, entry.attributes)
        if len(answers) != 1:
            yield (
                f"{name}: {len(answers)} trials are stored with {shown(entry.attributes)}, and one follows from the "
                "stage before."
            )
        for trial in answers:
            what = f"{name} trial {trial.number}: what was enqueued"
            yield from differing(what, trial.system_attrs.get("fixed_params"), entry.params)
            if trial.state != TrialState.WAITING:
                yield from differing(what, trial.user_attrs["params"], entry.params)
    seeds = {entry.attributes["seed"] for entry in wanted}
    for trial in stored:
        seed = trial.user_attrs["seed"]
        if seed not in seeds:
            yield f"{name} trial {trial.number}: its seed {seed} is stored, and the seeds are {sorted(seeds)}."

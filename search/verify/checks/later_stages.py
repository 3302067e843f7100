"""The stages whose trials follow from those of the stage before: noise, confirmation, final trainings."""

from collections.abc import Callable, Iterator, Sequence

from optuna.trial import FrozenTrial, TrialState

from search.plan.search import Search
from search.selection.selection import Selection
from search.stages.queued_stages import confirm_stage, final_stage, noise_stage
from search.study.names import Stage
from search.study.trial_queue import QueuedStage
from search.verify.check import Check, check, differing, shown
from search.verify.records import Records


def check_noise_trials(records: Records) -> Iterator[Check]:
    """The noise stage's trials are those that the file asks for."""
    yield from _check_stage(records, Stage.NOISE, noise_stage)


def check_confirmations(records: Records) -> Iterator[Check]:
    """The confirmations are those of the finalists that follow from the search, with the seeds that follow."""
    if records.search.is_done(Stage.SEARCH):
        yield from _check_stage(records, Stage.SELECT, confirm_stage)


def check_final_trainings(records: Records, selection: Selection) -> Iterator[Check]:
    """The trainings for the test are those of the frozen choice, with the seeds that follow."""
    yield from _check_stage(records, Stage.TEST, lambda search: final_stage(search, selection))


def _check_stage(records: Records, stage: Stage, enqueue: Callable[[Search], QueuedStage]) -> Iterator[Check]:
    names = {records.name_of(loss, stage): loss for loss in records.losses(stage)}
    stored = {name: records.search.trials(loss, stage) for name, loss in names.items()}
    if not any(stored.values()):
        return
    for queued in enqueue(records.search_without(names)).studies:
        name = queued.study.name
        wanted = queued.study.trials()
        yield check(
            f"{name}: {len(wanted)} trials, which follow from the stage before", _problems(name, stored[name], wanted)
        )


def _problems(name: str, stored: Sequence[FrozenTrial], wanted: Sequence[FrozenTrial]) -> Iterator[str]:
    """What is wanted is there once, and nothing has a seed of its own; more was wanted if trials were added since."""
    seeds = {trial.user_attrs["seed"] for trial in wanted}
    for trial in stored:
        seed = trial.user_attrs["seed"]
        if seed not in seeds:
            yield f"{name} trial {trial.number}: its seed {seed} is stored, and the seeds are {sorted(seeds)}."
    for trial in wanted:
        answers = [entry for entry in stored if trial.user_attrs.items() <= entry.user_attrs.items()]
        if len(answers) != 1:
            yield (
                f"{name}: {len(answers)} trials are stored with {shown(trial.user_attrs)}, and one follows from the "
                "stage before."
            )
        for answer in answers:
            what = f"{name} trial {answer.number}: what was enqueued"
            asked = trial.system_attrs["fixed_params"]
            yield from differing(what, answer.system_attrs.get("fixed_params"), asked)
            if answer.state != TrialState.WAITING:
                yield from differing(what, answer.user_attrs["params"], asked)

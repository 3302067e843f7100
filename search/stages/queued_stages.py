"""Each stage of a search as the trials that it queues."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from search.plan.search import Search
from search.plan.trainings import training_of
from search.selection.audit import to_audit
from search.selection.choice import rounds
from search.selection.confirmation import Confirmation, confirmations, finalists
from search.selection.role import Role
from search.selection.selection import Selection
from search.study.budget import Budget
from search.study.names import Stage
from search.study.study import LossStudy
from search.study.trial_queue import QueuedStage, QueuedStudy
from spaces.value import Value
from trainables.spec import derived_seed

Wanted = Sequence[tuple[Mapping[str, Value], dict[str, Any]]]
"""Trials to enqueue: parameters and user attributes."""


def noise_stage(search: Search) -> QueuedStage:
    """One configuration with several seeds, and with the first of them on other class splits."""
    noise, loss = search.config.noise, search.config.noise_loss
    given = {} if noise.configuration == "default" else noise.configuration
    runs = [(seed, 0) for seed in range(noise.seeds)] + [(0, split + 1) for split in range(noise.splits)]
    wanted = [
        (search.plan.spaces[loss].complete(given), {"seed": _shared_seed(search, Stage.NOISE, seed), "split": split})
        for seed, split in runs
    ]
    return QueuedStage(stage=Stage.NOISE, studies=[_enqueued(search, loss, Stage.NOISE, wanted)])


def search_stage(search: Search) -> QueuedStage:
    """The search itself. Trial 0 of every loss is the papers' default."""
    studies = []
    for loss in search.config.loss_names:
        study = search.study(loss, Stage.SEARCH)
        if not study.trials():
            study.enqueue([(search.plan.spaces[loss].default, {"default": True})])
        studies.append(_queued(search, study, loss, Stage.SEARCH, search.plan.budget(loss)))
    return QueuedStage(stage=Stage.SEARCH, studies=studies)


def audit_stage(search: Search) -> QueuedStage:
    """Pruned trials once more, with their own seeds, and to the end."""
    studies = []
    for loss in search.config.loss_names:
        trials, section = search.study(loss, Stage.SEARCH).trials(), search.config.search
        wanted = [
            (trial.params, {"configuration": trial.number, "seed": trial.user_attrs["seed"]})
            for trial in to_audit(trials, section.audit, seed=section.seed, loss=loss)
        ]
        studies.append(_enqueued(search, loss, Stage.AUDIT, wanted))
    return QueuedStage(stage=Stage.AUDIT, studies=studies)


def confirm_stages(searches: Sequence[Search]) -> Iterator[QueuedStage]:
    """The finalists and the default again, with fresh seeds that are the same for all losses, on class splits in turn.

    First each with one, then with as many as the rule gives it after what the first one came to.
    """
    for confirmed in (_first_confirmations, _all_confirmations):
        yield side_by_side(Stage.SELECT, [confirmed(search) for search in searches])


def _first_confirmations(search: Search) -> QueuedStage:
    return _confirm_stage(search, lambda loss, numbers: dict.fromkeys(numbers, 1))


def _all_confirmations(search: Search) -> QueuedStage:
    selection, first_seed = search.config.selection, _shared_seed(search, Stage.SELECT, 0)

    def seeds_of(loss: str, numbers: Sequence[int]) -> dict[int, int]:
        searched, confirmed = (search.study(loss, stage).trials() for stage in (Stage.SEARCH, Stage.SELECT))
        first = [trial for trial in confirmed if trial.user_attrs["seed"] == first_seed]
        found = confirmations(searched, first, numbers, search.config.objective)
        return rounds(selection.rule, list(found.values()), selection.seeds)

    return _confirm_stage(search, seeds_of)


def _confirm_stage(search: Search, seeds_of: Callable[[str, Sequence[int]], Mapping[int, int]]) -> QueuedStage:
    studies, selection = [], search.config.selection
    for loss in search.config.loss_names:
        trials = search.study(loss, Stage.SEARCH).trials()
        numbers = [trial.number for trial in finalists(trials, selection.finalists)]
        attributes = [
            {"seed": _shared_seed(search, Stage.SELECT, index), "split": index % selection.splits}
            for index in range(len(numbers) * selection.seeds)
        ]
        wanted = [
            (trials[number].params, {"configuration": number, **attributes[index]})
            for number, seeds in seeds_of(loss, numbers).items()
            for index in range(seeds)
        ]
        studies.append(_enqueued(search, loss, Stage.SELECT, wanted))
    return QueuedStage(stage=Stage.SELECT, studies=studies)


def final_stage(search: Search, selection: Selection) -> QueuedStage:
    """The chosen configuration and the default of every loss, trained for the test.

    Under cross-validation the model of every fold is trained, to be scored by itself (as in Tables 12 and 13 of
    Metric Learning: A Deep Dive), unless all training classes train.
    """
    studies = []
    for loss in selection.chosen:
        wanted = [
            (entry.params, {**attributes, "seed": _shared_seed(search, Stage.TEST, index)})
            for entry in selection.configurations(loss)
            for index in range(search.config.final.seeds)
            for attributes in _final_attributes(search, entry, selection.role(loss, entry))
        ]
        studies.append(_enqueued(search, loss, Stage.TEST, wanted))
    return QueuedStage(stage=Stage.TEST, studies=studies)


def _final_attributes(search: Search, entry: Confirmation, role: Role) -> list[dict[str, Any]]:
    """What each seed of a configuration trains: one model, or one a fold."""
    attributes: dict[str, Any] = {"configuration": entry.number, "role": role.value}
    if search.config.final.train_on == "all":
        return [{**attributes, "epochs": entry.median_best_epoch or search.config.training.epochs}]
    return [{**attributes, "fold": fold + 1} for fold in range(len(search.plan.split.folds))] or [attributes]


def side_by_side(stage: Stage, stages: Sequence[QueuedStage]) -> QueuedStage:
    """``stage`` of several searches as one: nobody waits for another's last trial."""
    return QueuedStage(stage=stage, studies=[study for stage in stages for study in stage.studies])


def _enqueued(search: Search, loss: str, stage: Stage, wanted: Wanted) -> QueuedStudy:
    study = search.study(loss, stage)
    study.enqueue(wanted)
    return _queued(search, study, loss, stage, Budget(trials=len(wanted)))


def _queued(search: Search, study: LossStudy, loss: str, stage: Stage, budget: Budget) -> QueuedStudy:
    return QueuedStudy(
        loss=loss,
        study=study,
        budget=budget,
        prune=stage is Stage.SEARCH,
        seed=partial(derived_seed, search.config.search.seed, loss),
        spec=partial(training_of, search.plan, loss, stage),
    )


def _shared_seed(search: Search, stage: Stage, index: int) -> int:
    return derived_seed(search.config.search.seed, stage.trainings, index)

"""The trials that each stage queues, and the freeze at the end of selection."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from search.plan.plan import training_of
from search.plan.search import OpenedSearch
from search.report.comparison import Comparison, compare, family_of, shown_metrics
from search.report.rows import Row
from search.report.summary import Summary, write_summary
from search.selection import (
    EXPORTED,
    Confirmation,
    Family,
    Selection,
    choose,
    confirmations,
    finalists,
    rounds,
    rule_in_words,
    study_digest,
)
from search.stages import Role, Stage, study_name
from search.study import Budget, LossStudy, QueuedStage, QueuedStudy, to_audit
from spaces.space import Value
from trainables.metrics.table import all_metrics, metric_name
from trainables.mistakes import Failure, Mistakes, raise_if_any
from trainables.spec import derived_seed

# Each stage of a search as the trials that it queues.

Wanted = Sequence[tuple[Mapping[str, Value], dict[str, Any]]]
"""Trials to enqueue: parameters and user attributes."""


def noise_stage(search: OpenedSearch) -> QueuedStage:
    """One configuration with several seeds, and with the first of them on other class splits."""
    noise, loss = search.config.noise, search.config.noise_loss
    given = {} if noise.configuration == "default" else noise.configuration
    runs = [(seed, 0) for seed in range(noise.seeds)] + [(0, split + 1) for split in range(noise.splits)]
    wanted = [
        (search.plan.spaces[loss].complete(given), {"seed": _shared_seed(search, Stage.NOISE, seed), "split": split})
        for seed, split in runs
    ]
    return QueuedStage(stage=Stage.NOISE, studies=[_enqueued(search, loss, Stage.NOISE, wanted)])


def search_stage(search: OpenedSearch) -> QueuedStage:
    """The search itself. Trial 0 of every loss is the papers' default."""
    studies = []
    for loss in search.config.loss_names:
        study = search.study(loss, Stage.SEARCH)
        if not study.trials():
            study.enqueue([(search.plan.spaces[loss].default, {"default": True})])
        studies.append(_queued(search, study, loss, Stage.SEARCH, search.plan.budget(loss)))
    return QueuedStage(stage=Stage.SEARCH, studies=studies)


def audit_stage(search: OpenedSearch) -> QueuedStage:
    """Pruned trials once more, with their own seeds, and to the end."""
    studies = []
    for loss in search.config.loss_names:
        trials, section = search.study(loss, Stage.SEARCH).trials(), search.config.search
        wanted = [
            (trial.params, {"source_trial": trial.number, "seed": trial.user_attrs["seed"]})
            for trial in to_audit(trials, section.audit, seed=section.seed, loss=loss)
        ]
        studies.append(_enqueued(search, loss, Stage.AUDIT, wanted))
    return QueuedStage(stage=Stage.AUDIT, studies=studies)


def confirm_stages(searches: Sequence[OpenedSearch]) -> Iterator[QueuedStage]:
    """The finalists and the default again, with fresh seeds that are the same for all losses, on class splits in turn.

    First each with one, then with as many as the rule gives it after what the first one came to.
    """
    for confirmed in (_first_confirmations, _all_confirmations):
        yield side_by_side(Stage.SELECT, [confirmed(search) for search in searches])


def _first_confirmations(search: OpenedSearch) -> QueuedStage:
    return _confirm_stage(search, lambda loss, numbers: dict.fromkeys(numbers, 1))


def _all_confirmations(search: OpenedSearch) -> QueuedStage:
    selection, first_seed = search.config.selection, _shared_seed(search, Stage.SELECT, 0)

    def seeds_of(loss: str, numbers: Sequence[int]) -> dict[int, int]:
        searched, confirmed = (search.study(loss, stage).trials() for stage in (Stage.SEARCH, Stage.SELECT))
        first = [trial for trial in confirmed if trial.user_attrs["seed"] == first_seed]
        found = confirmations(searched, first, numbers, search.config.objective)
        return rounds(selection.rule, list(found.values()), selection.seeds)

    return _confirm_stage(search, seeds_of)


def _confirm_stage(search: OpenedSearch, seeds_of: Callable[[str, Sequence[int]], Mapping[int, int]]) -> QueuedStage:
    studies, selection = [], search.config.selection
    for loss in search.config.loss_names:
        trials = search.study(loss, Stage.SEARCH).trials()
        numbers = [trial.number for trial in finalists(trials, selection.finalists)]
        attributes = [
            {"seed": _shared_seed(search, Stage.SELECT, index), "split": index % selection.splits}
            for index in range(len(numbers) * selection.seeds)
        ]
        wanted = [
            (trials[number].params, {"source_trial": number, **attributes[index]})
            for number, seeds in seeds_of(loss, numbers).items()
            for index in range(seeds)
        ]
        studies.append(_enqueued(search, loss, Stage.SELECT, wanted))
    return QueuedStage(stage=Stage.SELECT, studies=studies)


def final_stage(search: OpenedSearch, selection: Selection) -> QueuedStage:
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


def _final_attributes(search: OpenedSearch, entry: Confirmation, role: Role) -> list[dict[str, Any]]:
    """What each seed of a configuration trains: one model, or one a fold."""
    attributes: dict[str, Any] = {"source_trial": entry.number, "role": role.value}
    if search.config.final.train_on == "all":
        return [{**attributes, "epochs": entry.median_best_epoch or search.config.training.epochs}]
    return [{**attributes, "fold": fold + 1} for fold in range(len(search.plan.split.folds))] or [attributes]


def side_by_side(stage: Stage, stages: Sequence[QueuedStage]) -> QueuedStage:
    """``stage`` of several searches as one: nobody waits for another's last trial."""
    return QueuedStage(stage=stage, studies=[study for stage in stages for study in stage.studies])


def _enqueued(search: OpenedSearch, loss: str, stage: Stage, wanted: Wanted) -> QueuedStudy:
    study = search.study(loss, stage)
    study.enqueue(wanted)
    return _queued(search, study, loss, stage, Budget(trials=len(wanted)))


def _queued(search: OpenedSearch, study: LossStudy, loss: str, stage: Stage, budget: Budget) -> QueuedStudy:
    return QueuedStudy(
        loss=loss,
        study=study,
        budget=budget,
        prune=stage is Stage.SEARCH,
        seed=partial(derived_seed, search.config.search.seed, loss),
        spec=partial(training_of, search.plan, loss, stage),
    )


def _shared_seed(search: OpenedSearch, stage: Stage, index: int) -> int:
    return derived_seed(search.config.search.seed, stage.trainings, index)


# The end of the select stage: from a search's studies to its frozen selection.


class NothingToSelect(Failure):
    """No configuration of any loss could be confirmed; the message says so."""


def freeze(search: OpenedSearch, family: Family | None = None) -> Selection:
    """Choose one configuration a loss and freeze the choice, with the table that the test will make.

    Args:
        search: the search.
        family: the table of its campaign; None where it makes one by itself.

    Raises:
        NothingToSelect: no trial of any loss finished.
    """
    selection = selection_of(search, family)
    selection.save(search.plan.folder.selection)
    return selection


def selection_of(search: OpenedSearch, family: Family | None = None) -> Selection:
    """The choice that follows from the search's studies, as :func:`freeze` takes it; nothing is written.

    Raises:
        NothingToSelect: no trial of any loss finished.
    """
    plan = search.plan
    chosen: dict[str, Confirmation] = {}
    defaults: dict[str, Confirmation] = {}
    reasons: dict[str, str] = {}
    for loss in plan.config.loss_names:
        searched, confirmed = search.study(loss, Stage.SEARCH), search.study(loss, Stage.SELECT)
        trials = searched.trials()
        numbers = [trial.number for trial in finalists(trials, plan.config.selection.finalists)]
        candidates = confirmations(trials, confirmed.trials(), numbers, plan.config.objective)
        if choice := choose(plan.config.selection.rule, candidates):
            chosen[loss], estimated, reasons[loss] = choice
            default = trials[0].params
            defaults[loss] = next(entry for entry in estimated.values() if entry.params == default)
    if not chosen:
        raise NothingToSelect(
            f"No trial of {', '.join(plan.config.loss_names)} could be confirmed; `holdout status {plan.config.name}` "
            "shows how many failed, and MLflow how."
        )
    test_metrics = plan.config.test_metrics
    names = all_metrics() if isinstance(test_metrics, str) else test_metrics
    return Selection(
        id=uuid.uuid4().hex,
        search=plan.config.name,
        objective=plan.config.objective,
        test_metrics=tuple(names),
        family=family or _own_family(search, tuple(map(metric_name, names)), chosen),
        split_digest=plan.split.digest,
        test_digest=plan.split.test_digest,
        studies=_study_digests(search),
        rule=rule_in_words(plan.config.selection.rule, plan.config.selection.splits),
        exported=EXPORTED,
        chosen=chosen,
        defaults=defaults,
        reasons=reasons,
    )


def _study_digests(search: OpenedSearch) -> dict[str, str]:
    """The digests of all studies of the stages up to the choice, by their names."""
    noise = search.config.noise_loss
    measured = [(noise, Stage.NOISE)] if search.trials(noise, Stage.NOISE) else []
    chosen_by = [(loss, stage) for loss in search.config.loss_names for stage in (Stage.SEARCH, Stage.SELECT)]
    return {
        study_name(search.name, loss, stage): study_digest(search.trials(loss, stage))
        for loss, stage in (*measured, *chosen_by)
    }


def _own_family(search: OpenedSearch, computed: Sequence[str], chosen: Mapping[str, Confirmation]) -> Family:
    rows = [
        Row(search=search.name, loss=loss, role=role, number=number)
        for loss, entry in chosen.items()
        for role, number in ((Role.DEFAULT, 0), (Role.TUNED, entry.number))
    ]
    return family_of(rows, shown_metrics(search.config.objective, computed))


def frozen_selection(search: OpenedSearch) -> Selection:
    """The frozen selection of ``search``, whose studies and objective are still those that it was made from.

    Raises:
        Mistakes: there is none, or it, a study or the objective was changed since.
    """
    selection = Selection.load(search.plan.folder.selection)
    if search.config.objective != selection.objective:
        raise Mistakes(
            f"search.objective: {search.name} was chosen by {selection.objective} and its search file now says "
            f"{search.config.objective}; put it back, or search under a new name."
        )
    now = _study_digests(search)
    changed = sorted(name for name in {*now, *selection.studies} if now.get(name) != selection.studies.get(name))
    raise_if_any(
        [
            f"The study {name} was changed after the choice of {search.name} was frozen (its digest does not fit); "
            "restore it, or search under a new name."
            for name in changed
        ]
    )
    return selection


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A search with the summary of its last stage."""

    search: OpenedSearch
    summary: Summary

    @cached_property  # MLflow shows what the command line prints
    def comparison(self) -> Comparison:
        """The search's losses beside each other."""
        return compare([self.search.plan.folder], [self.summary])


def recorded_outcome(search: OpenedSearch) -> Outcome:
    """What a search came to, by its records; ``summary.json`` is brought up to date."""
    return Outcome(search=search, summary=write_summary(search))

"""The end of the select stage: from a search's studies to its frozen selection."""

import uuid
from collections.abc import Mapping, Sequence

from search.plan.search import Search
from search.report.results.row import Row
from search.report.seal.family import family_of, shown_metrics
from search.selection.choice import choose, rule_in_words
from search.selection.confirmation import Confirmation, confirmations, finalists
from search.selection.exported import EXPORTED
from search.selection.family import Family
from search.selection.role import Role
from search.selection.selection import Selection, study_digest
from search.study.configurations import configuration_of
from search.study.names import Stage, study_name
from trainables.metrics.table import all_metrics, metric_name
from trainables.mistakes import Failure, Mistakes, raise_if_any

NO_VALUES: Mapping[str, None] = dict.fromkeys(("params", "search_value", "confirmed", "final", "test", "test_small"))
"""Of a row before the test: which rows there are is frozen, and not what they come to."""


class NothingToSelect(Failure):
    """No configuration of any loss could be confirmed; the message says so."""


def freeze(search: Search, family: Family | None = None) -> Selection:
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


def selection_of(search: Search, family: Family | None = None) -> Selection:
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
            default = configuration_of(trials[0])
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


def _study_digests(search: Search) -> dict[str, str]:
    """The digests of all studies of the stages up to the choice, by their names."""
    noise = search.config.noise_loss
    measured = [(noise, Stage.NOISE)] if search.trials(noise, Stage.NOISE) else []
    chosen_by = [(loss, stage) for loss in search.config.loss_names for stage in (Stage.SEARCH, Stage.SELECT)]
    return {
        study_name(search.name, loss, stage): study_digest(search.trials(loss, stage))
        for loss, stage in (*measured, *chosen_by)
    }


def _own_family(search: Search, computed: Sequence[str], chosen: Mapping[str, Confirmation]) -> Family:
    rows = [
        Row(search=search.name, loss=loss, role=role, number=number, **NO_VALUES)
        for loss, entry in chosen.items()
        for role, number in ((Role.DEFAULT, 0), (Role.TUNED, entry.number))
    ]
    return family_of(rows, shown_metrics(search.config.objective, computed))


def frozen_selection(search: Search) -> Selection:
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

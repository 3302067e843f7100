"""The end of the select stage: from a search's studies to its frozen selection."""

from search.failure import Failure
from search.plan.search import Search
from search.selection.choice import RULES, choose
from search.selection.confirmation import Confirmation, confirmations, finalists
from search.selection.selection import Selection, study_digest
from search.study.configurations import configuration_of
from search.study.names import Stage, study_name


class NothingToSelect(Failure):
    """No configuration of any loss could be confirmed; the message says so."""


def freeze(search: Search) -> Selection:
    """Choose one configuration a loss and freeze the choice.

    Raises:
        NothingToSelect: no trial of any loss finished.
    """
    selection = selection_of(search)
    selection.save(search.plan.folder.selection)
    return selection


def selection_of(search: Search) -> Selection:
    """The choice that follows from the search's studies; nothing is written.

    Raises:
        NothingToSelect: no trial of any loss finished.
    """
    plan = search.plan
    chosen: dict[str, Confirmation] = {}
    defaults: dict[str, Confirmation] = {}
    reasons: dict[str, str] = {}
    digests: dict[str, str] = {}
    if noise := search.trials(plan.config.noise_loss, Stage.NOISE):
        digests[study_name(search.name, plan.config.noise_loss, Stage.NOISE)] = study_digest(noise)
    for loss in plan.config.loss_names:
        searched, confirmed = search.study(loss, Stage.SEARCH), search.study(loss, Stage.SELECT)
        trials = searched.trials()
        numbers = [trial.number for trial in finalists(trials, plan.config.selection.finalists)]
        candidates = confirmations(trials, confirmed.trials(), numbers, plan.config.objective)
        digests |= {study.name: study_digest(study.trials()) for study in (searched, confirmed)}
        if choice := choose(plan.config.selection.rule, candidates):
            chosen[loss], estimated, reasons[loss] = choice
            default = configuration_of(trials[0])
            defaults[loss] = next(entry for entry in estimated.values() if entry.params == default)
    if not chosen:
        raise NothingToSelect(
            f"No trial of {', '.join(plan.config.loss_names)} could be confirmed; `holdout status {plan.config.name}` "
            "shows how many failed, and MLflow how."
        )
    return Selection(
        search=plan.config.name,
        objective=plan.config.objective,
        split_digest=plan.split.digest,
        test_digest=plan.split.test_digest,
        studies=digests,
        rule=RULES[plan.config.selection.rule],
        chosen=chosen,
        defaults=defaults,
        reasons=reasons,
    )

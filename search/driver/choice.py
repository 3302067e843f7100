"""The choice: which losses failed, the frozen selection, and whether it is unchanged."""

import itertools
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence

from optuna.trial import FrozenTrial, TrialState

from search.difference import Family, RowKey, best_baseline, shown_metrics, tested_pairs
from search.records import (
    EXPORTED,
    Confirmation,
    Selection,
    choose,
    confirmations,
    finalists,
    recommend,
    rule_in_words,
    study_digest,
    unmet_sentence,
)
from search.records.records import Records
from search.stages import BASELINES, Role, Stage, short_study_name, study_name
from search.trials import Tally
from trainables.common.errors import Failure, raise_if_any
from trainables.metrics import metric_name

logger = logging.getLogger(__name__)


def to_retry(search: Records, stage: Stage) -> dict[str, int]:
    """Return how many trials failed, by loss, whose code failed before any value; empty if the stage has its result."""
    is_over = search.is_done(Stage.TEST if stage is Stage.TEST else Stage.SELECT)
    losses = () if is_over else search.config.loss_names
    return {loss: count for loss in losses if (count := Tally.of(search.trials(loss, stage)).failed_without_value)}


class NothingToSelect(Failure):
    """Error of a search in which no configuration of any loss could be confirmed."""


class FailedLosses(Failure):
    """Error of a search before its choice: at least one loss failed in every trial."""


def refuse_failed(searches: Sequence[Records], stage: Stage) -> None:
    """Raise :class:`FailedLosses` with the error of each loss whose trials in ``stage`` failed or cannot be tested."""
    sentences, left, retries = [], [], []
    for search in searches:
        for loss in search.config.loss_names:
            trials = [trial for trial in search.trials(loss, stage) if trial.state != TrialState.WAITING]
            if Tally.of(trials).untestable or (trials and all(trial.state == TrialState.FAIL for trial in trials)):
                sentences.append(_first_failure(search, loss, stage, trials))
                retries.append(loss in to_retry(search, stage))
            else:
                left.append(loss)
    if not sentences:
        return
    fix = "Correct the cause and " + ("run the same search again" if all(retries) else "search under a new name")
    if left:
        others = ", ".join(dict.fromkeys(left))
        fix += f", or repeat the command with --allow-failed (in Python allow_failed=True) to continue with {others}"
    raise _nothing_chosen(sentences, fix, stage)


def refuse_unmet(searches: Sequence[Records]) -> None:
    """Raise :class:`FailedLosses` with what each loss lacks of which no configuration meets the constraints."""
    if sentences := [sentence for search in searches for sentence in _unmet(search)]:
        raise _nothing_chosen(
            sentences,
            "Raise search.trials, or search under a new name with other constraints or ranges; with --allow-failed (in "
            "Python allow_failed=True) the search continues without these losses",
        )


def _nothing_chosen(sentences: Sequence[str], fix: str, stage: Stage = Stage.SELECT) -> FailedLosses:
    so = "The" if stage is Stage.TEST else "Nothing was chosen, and the"
    return FailedLosses("\n".join([*sentences, f"{so} test classes stay sealed. {fix}."]))


def _first_failure(search: Records, loss: str, stage: Stage, trials: Sequence[FrozenTrial]) -> str:
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    failures = [trial.user_attrs["failure"] for trial in failed]
    first = next((place for place, failure in enumerate(failures) if "untestable" in failure), 0)
    counts = Counter(failure["cause"] for failure in failures).items()
    causes = ", ".join(f"{cause} in {count} of {len(trials)}" for cause, count in counts)
    study = short_study_name(loss, stage)
    what, did = ("No model", "can be tested") if "untestable" in failures[first] else ("Every trial", "failed")
    return (
        f"{what} of {search.name}/{study} {did} ({causes}). The first error: {failures[first]['reason'].rstrip('.')}. "
        f"`holdout trials {search.name} {study} {failed[first].number}` shows its log."
    )


def freeze_all(searches: Sequence[Records], family: Family | None) -> None:
    """Freeze the choices that are not; warn about searches with nothing to select, and raise if that is all."""
    failures = []
    for search in searches:
        try:
            if not search.is_done(Stage.SELECT):
                freeze(search, family)
        except NothingToSelect as nothing:
            failures.append(nothing)
    if len(failures) == len(searches):
        raise failures[0]
    for failure in failures:
        logger.warning("%s", failure)


def freeze(search: Records, family: Family | None = None) -> Selection:
    """Save and return the choice of a search (:func:`selection_of`)."""
    selection = selection_of(search, family)
    selection.save(search.folder.selection)
    return selection


def selection_of(search: Records, family: Family | None = None) -> Selection:
    """Return the choice that follows from the studies, and the table of its test or a campaign's ``family``."""
    plan = search.plan
    chosen: dict[str, Confirmation] = {}
    defaults: dict[str, Confirmation] = {}
    reasons: dict[str, str] = {}
    for loss in plan.config.loss_names:
        candidates, default = _candidates(search, loss), search.trials(loss)[0].params
        if choice := choose(candidates, default, plan.basis, plan.config.goal):
            chosen[loss], reasons[loss] = choice
            defaults[loss] = next(entry for entry in candidates.values() if entry.params == default)
    if not chosen:
        raise NothingToSelect(
            "\n".join(_unmet(search))
            or f"No trial of {', '.join(plan.config.loss_names)} could be confirmed; `holdout status "
            f"{plan.config.name}` counts the failed trials and MLflow shows their errors."
        )
    baselines, names = search.baselines, plan.config.test_metrics
    if family is None:
        untrained = {name: RowKey(search.name, name, Role.BASELINE) for name in (BASELINES if baselines else ())}
        rows: dict[RowKey, int | None] = dict.fromkeys(untrained.values())
        for loss, entry in chosen.items():
            rows |= {RowKey(search.name, loss, Role.DEFAULT): 0, RowKey(search.name, loss, Role.TUNED): entry.number}
        best = {search.name: untrained[best_baseline(baselines.classes)]} if baselines else {}
        metrics = shown_metrics(search.config.objective, tuple(map(metric_name, names)))
        family = Family.of(metrics, rows, tested_pairs(rows, best), search.config.final.within)
    return Selection(
        id=uuid.uuid4().hex,
        search=plan.config.name,
        objective=plan.config.objective,
        test_metrics=names,
        family=family,
        split_digest=plan.split.digest,
        test_digest=plan.split.test_digest,
        studies=study_digests(search, plan.config.loss_names, CHOSEN_FROM),
        rule=rule_in_words(plan.basis, plan.config.goal),
        exported=EXPORTED,
        chosen=chosen,
        defaults=defaults,
        reasons=reasons,
        recommended=recommend(chosen, baselines.classes if baselines else {}, plan.basis),
        trained_on_opened=search.trained_on_opened,
        baselines=baselines.digest if baselines else None,
    )


def _candidates(search: Records, loss: str) -> dict[int, Confirmation]:
    """Return the confirmations of the finalists of ``loss``, by the number of the trial."""
    trials, config = search.trials(loss), search.config
    numbers = [trial.number for trial in finalists(trials, config.selection.finalists, config.goal)]
    confirmed = search.trials(loss, Stage.SELECT)
    return confirmations(trials, confirmed, numbers, config.objective, config.goal)


def _unmet(search: Records) -> list[str]:
    """Return a sentence for each loss of which no confirmed configuration meets the constraints."""
    goal = search.config.goal
    losses = search.config.loss_names if goal.constraints else ()
    found = (unmet_sentence(loss, [*_candidates(search, loss).values()], goal) for loss in losses)
    return [*filter(None, found)]


CHOSEN_FROM = (Stage.SEARCH, Stage.SELECT)
"""The stages that the choice depends on."""


def study_digests(search: Records, losses: Iterable[str], stages: Sequence[Stage]) -> dict[str, str]:
    """Return the digests of the studies of ``losses`` in ``stages``, by study name."""
    studies = itertools.product(losses, stages)
    return {study_name(search.name, *of): study_digest(search.trials(*of)) for of in studies}


def unchanged_selection(search: Records) -> Selection:
    """Return the frozen selection of ``search``; raise if it or a study was changed after the choice."""
    selection = search.frozen_selection
    now = study_digests(search, search.config.loss_names, CHOSEN_FROM)
    changed = sorted(name for name in {*now, *selection.studies} if now.get(name) != selection.studies.get(name))
    was = f"was changed after the choice of {search.name} was frozen (its digest does not match)"
    raise_if_any([f"The study {name} {was}; restore it, or start a search with a new name." for name in changed])
    return selection

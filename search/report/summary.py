"""The summary of a search, derived from its records alone."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from search.plan.plan import Plan
from search.plan.search import OpenedSearch, search_so_far
from search.plan.stored import StoredSearch
from search.report.anytime import incumbents
from search.report.diagnostics import diagnose, noise_summary, pruning_audit
from search.report.results import (
    BestTrial,
    ChosenConfiguration,
    Confirmed,
    DefaultSummary,
    LossSummary,
    ScoredModel,
    ScoredOpening,
    SeedInterval,
    SeedOutcomes,
    SeedStatistics,
    SplitAgreement,
    SplitSummary,
    Summary,
    TimeSummary,
    TrialCounts,
    scored_openings,
    stored_summary,
)
from search.report.statistics import over_seeds
from search.selection import Confirmation, Ledger, Selection, best_on_splits, confirmations, finalists
from search.stages import Stage
from search.trials import by_params, epochs_of, mean_value
from trainables.files import write_text
from trainables.metrics.table import is_bounded
from trainables.mistakes import Mistakes
from trainables.spec import EpochRecord

# What a search came to so far, derived from its records alone.

Trials = Mapping[Stage, Sequence[FrozenTrial]]
"""The trials of one loss in each stage."""


def write_summary(search: OpenedSearch) -> Summary:
    """Derive the summary from the search's records and write ``summary.json``, unless it says the same already."""
    path = search.plan.folder.summary
    summary = summarise(search, _stored(path))
    text = json.dumps(summary.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"
    if not path.exists() or path.read_bytes() != text.encode():
        write_text(path, text)
    return summary


def _stored(path: Path) -> Summary | None:
    """The summary that was written last; None where there is none that can be read."""
    try:
        return Summary.load(path) if path.exists() else None
    except Mistakes:
        return None


def summarise(search: OpenedSearch, stored: Summary | None = None) -> Summary:
    """The summary, as the studies, the selection and the test results say. What is not there yet is None.

    ``stored`` is the one before, of which a loss whose trials have not changed since is taken.
    """
    plan = search.plan
    config, folder, split = plan.config, plan.folder, plan.split
    selection = Selection.load(folder.selection) if folder.selection.exists() else None
    test = scored_openings(folder.test)
    trials: dict[str, Trials] = {
        loss: {stage: search.trials(loss, stage) for stage in Stage} for loss in config.loss_names
    }
    return Summary(
        name=config.name,
        split=SplitSummary(
            digest=split.digest,
            train_classes=len(split.train),
            validation_classes=len(split.validation),
            gallery=split.gallery,
            training_half=config.metrics.gallery == "training_half",
            test_classes=len(split.test),
            folds=len(split.folds) or None,
            merge=split.merge,
        ),
        objective=config.objective,
        noise=noise_summary(search.plan, trials[config.noise_loss][Stage.NOISE]),
        test_opened=len(Ledger(folder.openings).of_selection(selection.digest)) if selection else 0,
        losses={
            loss: _loss_summary(plan, loss, of_loss, selection, test, stored.losses.get(loss) if stored else None)
            for loss, of_loss in trials.items()
        },
        time=_time_summary(list(trials.values()), search.sessions, search.slots, test),
    )


def _loss_summary(
    plan: Plan,
    loss: str,
    trials: Trials,
    selection: Selection | None,
    test: Sequence[ScoredOpening],
    stored: LossSummary | None,
) -> LossSummary:
    searched, confirmed, objective = trials[Stage.SEARCH], trials[Stage.SELECT], plan.config.objective
    states = [trial.state for trial in searched]
    complete = [trial for trial in searched if trial.state == TrialState.COMPLETE]
    best = finalists(searched, 1)[0] if complete else None
    chosen = selection.chosen.get(loss) if selection else None
    confirmed_default = selection.defaults.get(loss) if selection else None
    if selection is None and complete and confirmed:
        confirmed_default = confirmations(searched, confirmed, [0], objective)[0]
    params = chosen.params if chosen else best.params if best else None
    space = plan.spaces[loss]
    summary = LossSummary(
        trials=TrialCounts(
            complete=states.count(TrialState.COMPLETE),
            pruned=states.count(TrialState.PRUNED),
            failed=states.count(TrialState.FAIL),
        ),
        epochs=sum(len(epochs_of(trial)) for trial in searched),
        ended_early=plan.budget(loss).early_end(searched),
        default=DefaultSummary(
            params=dict(space.default),
            value=mean_value(searched, searched[0].params) if complete else None,
            clipped=bool(space.clipped),
            confirmed=_confirmed(confirmed_default),
            final=_final(plan, trials[Stage.TEST], confirmed_default),
            test=_tested(test, loss, confirmed_default),
            test_small=_tested_small(test, loss, confirmed_default),
            confirmed_seeds=_seeds(confirmed, confirmed_default),
            final_seeds=_seeds(trials[Stage.TEST], confirmed_default, plan.config.final.seeds),
        ),
        best=_best(searched, best) if best else None,
        confirmed=_chosen(chosen) if chosen else None,
        other_splits=_split_agreement(plan, searched, confirmed, chosen) if chosen else None,
        final=_final(plan, trials[Stage.TEST], chosen),
        test=_tested(test, loss, chosen),
        test_small=_tested_small(test, loss, chosen),
        confirmed_seeds=_seeds(confirmed, chosen),
        final_seeds=_seeds(trials[Stage.TEST], chosen, plan.config.final.seeds),
        audit=pruning_audit(
            searched,
            trials[Stage.AUDIT],
            places=plan.config.selection.finalists,
            epochs=plan.config.training.epochs * len(plan.split.divisions),
        ),
        anytime=incumbents(searched, partial(_value, plan), _confirmed_means(searched, confirmed, objective)),
        diagnostics=(),
    )
    # The same trials say the same of themselves, and to ask them imports torch.
    if stored is not None and stored.model_copy(update={"diagnostics": ()}) == summary:
        return stored
    found = diagnose(plan.config.loss(loss).key, space.parameters, plan.config.training_of(loss), searched, params)
    return summary.model_copy(update={"diagnostics": found})


def _split_agreement(
    plan: Plan, searched: Sequence[FrozenTrial], confirmed: Sequence[FrozenTrial], chosen: Confirmation
) -> SplitAgreement | None:
    """None where confirmations validate on the search's split alone, or nothing was confirmed beside the choice."""
    if plan.config.selection.splits == 1:
        return None
    numbers = sorted({trial.user_attrs["source_trial"] for trial in confirmed})
    found = best_on_splits(chosen, list(confirmations(searched, confirmed, numbers, plan.config.objective).values()))
    return SplitAgreement(splits=len(found), best=sum(found)) if found else None


def _best(searched: Sequence[FrozenTrial], best: FrozenTrial) -> BestTrial:
    params = dict(best.params)
    value = mean_value(searched, params)
    assert value is not None, "it is among them"
    return BestTrial(params=params, value=value, number=best.number)


def _value(plan: Plan, records: Sequence[EpochRecord]) -> float | None:
    """A trial's value so far; in a cross-validation only with all folds, since the first ones may be the easy ones."""
    reached = plan.trial_value(Stage.SEARCH)(records)
    return None if reached is None or (plan.split.folds and reached[0] < plan.steps) else reached[1]


def _confirmed_means(
    searched: Sequence[FrozenTrial], confirmed: Sequence[FrozenTrial], objective: str
) -> dict[int, float]:
    """The confirmed mean of every trial whose configuration has one."""
    numbers = {trial.user_attrs["source_trial"] for trial in confirmed}
    found = confirmations(searched, confirmed, sorted(numbers), objective)
    return {
        trial.number: found[number].mean
        for group in by_params([trial for trial in searched if trial.state.is_finished()])
        for number in numbers & {trial.number for trial in group}
        if found[number].values
        for trial in group
    }


def _final(plan: Plan, trained: Sequence[FrozenTrial], entry: Confirmation | None) -> SeedStatistics | None:
    """The validation value of the trainings for the test, each at its best epoch; None where nothing validates."""
    if entry is None or plan.config.final.train_on == "all":
        return None
    found = [
        (trial.value, trial.user_attrs["seed"])
        for trial in trained
        if trial.state == TrialState.COMPLETE
        and trial.user_attrs["source_trial"] == entry.number
        and trial.value is not None
    ]
    if not found:
        return None
    return _statistics([value for value, _ in found], [seed for _, seed in found])


def _seeds(trained: Sequence[FrozenTrial], entry: Confirmation | None, wanted: int = 0) -> SeedOutcomes | None:
    """What became of a configuration's seeds in a stage, at least ``wanted`` of them."""
    if entry is None:
        return None
    return SeedOutcomes.of([trial for trial in trained if trial.user_attrs["source_trial"] == entry.number], wanted)


def _confirmed(entry: Confirmation | None) -> Confirmed | None:
    if entry is None or not entry.values:
        return None
    return Confirmed(**_statistics(entry.values).model_dump(), estimate=entry.estimate)


def _statistics(values: Sequence[float], seeds: Sequence[int] | None = None) -> SeedStatistics:
    """The statistics of validation values; only test scores have an interval."""
    found = over_seeds(values, seeds)
    return SeedStatistics(mean=found.mean, std=found.std, seeds=found.seeds, values=found.values)


def _chosen(chosen: Confirmation) -> ChosenConfiguration:
    return ChosenConfiguration(
        **_statistics(chosen.values).model_dump(),
        estimate=chosen.estimate,
        params=chosen.params,
        number=chosen.number,
        search_value=chosen.search_value,
    )


def _tested(test: Sequence[ScoredOpening], loss: str, entry: Confirmation | None) -> Mapping[str, SeedInterval] | None:
    """Each metric over the seeds of the first opening."""
    models = _models(test, loss, entry)
    if not models:
        return None
    seeds = [model.seed for model in models]
    return {
        name: over_seeds([model.metrics[name] for model in models], seeds, bounded=is_bounded(name))
        for name in models[0].metrics
    }


def _tested_small(test: Sequence[ScoredOpening], loss: str, entry: Confirmation | None) -> SeedStatistics | None:
    """The objective of the first opening among as many test classes as validate."""
    models = _models(test, loss, entry)
    values = [model.in_small_galleries for model in models if model.in_small_galleries is not None]
    return _statistics(values, [model.seed for model in models]) if values else None


def _models(test: Sequence[ScoredOpening], loss: str, entry: Confirmation | None) -> list[ScoredModel]:
    """The models of a configuration in the first opening."""
    if not test or entry is None:
        return []
    return [model for model in test[0].scores if (model.loss, model.source_trial) == (loss, entry.number)]


def _time_summary(
    trials: Sequence[Trials], sessions: Sequence[float], slots: int, test: Sequence[ScoredOpening]
) -> TimeSummary:
    """Where the time went. What passes between two sessions (a driver killed and started again) counts nowhere."""
    of_search = [record for loss in trials for trial in loss[Stage.SEARCH] for record in epochs_of(trial)]
    of_all = [record for loss in trials for stage in loss.values() for trial in stage for record in epochs_of(trial)]
    moments = [record["end"] for record in of_all] + [opening.finished for opening in test]
    ends = [*sessions, time.time() + 1][1:]
    wall = startup = search_wall = 0.0
    for start, end in zip(sessions, ends, strict=True):
        wall += max((moment - start for moment in moments if start <= moment < end), default=0.0)
        first = min((record["start"] for record in of_all if start <= record["start"] < end), default=start)
        startup += first - start
        searching = [record for record in of_search if start <= record["start"] < end]
        if searching:
            search_wall += max(record["end"] for record in searching) - min(record["start"] for record in searching)
    return TimeSummary(
        wall_s=round(wall, 3),
        startup_s=round(startup, 3),
        search_wall_s=round(search_wall, 3),
        trial_work_s=round(sum(record["end"] - record["start"] for record in of_search), 3),
        slots=slots,
    )


# What a search came to so far, also while it runs and before its first summary was written.


def summary_so_far(stored: StoredSearch) -> Summary:
    """The summary that was written last; while a driver holds the search, and before the first, one of its records.

    Nothing is written, and neither images nor losses are needed.

    Raises:
        Mistakes: the search has no studies yet, or its file cannot be read.
    """
    written = _written(stored)
    if written is not None and stored.folder.driver() is None:
        return written
    return summarise(search_so_far(stored), written)


def _written(stored: StoredSearch) -> Summary | None:
    if not stored.folder.summary.exists():
        return None
    try:
        return stored_summary(stored.folder)
    except Mistakes:  # another version's: the records say the same in today's form
        return None

"""``summary.json``: what a search came to so far, derived from its records alone."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from search.plan.plan import Plan
from search.report.anytime import incumbents
from search.report.diagnostics.diagnose import diagnose
from search.report.noise import noise_summary
from search.report.statistics.interval import over_seeds
from search.selection.openings import Ledger
from search.selection.selection import Confirmation, Selection, by_configuration, confirmations, finalists, mean_value
from search.study.names import Stage, study_name
from search.study.records import epochs_of
from search.study.storage import stored_trials
from trainables.epoch_record import EpochRecord
from trainables.files import write_json


def write_summary(plan: Plan, storage: RDBStorage, sessions: Sequence[float], slots: int) -> dict[str, Any]:
    """Write ``summary.json`` and return it."""
    summary = summarise(plan, storage, sessions, slots)
    write_json(plan.folder.summary, summary)
    return summary


def summarise(plan: Plan, storage: RDBStorage, sessions: Sequence[float], slots: int) -> dict[str, Any]:
    """The summary, as the studies, the selection and the test results say. What is not there yet is null."""
    folder, split = plan.folder, plan.split
    selection = Selection.load(folder.selection) if folder.selection.exists() else None
    test = json.loads(folder.test.read_text()) if folder.test.exists() else None
    trials = {
        stage: {
            loss: stored_trials(storage, study_name(plan.config.name, loss, stage)) for loss in plan.config.loss_names
        }
        for stage in (Stage.NOISE, Stage.SEARCH, Stage.SELECT, Stage.TEST)
    }
    openings = Ledger(folder.openings).of_selection(selection.digest) if selection else []
    return {
        "name": plan.config.name,
        "split": {
            "digest": split.digest,
            "train_classes": len(split.train),
            "validation_classes": len(split.validation),
            "test_classes": len(split.test),
            "folds": len(split.folds) or None,
            "merge": split.merge,
        },
        "objective": plan.config.search.objective,
        "noise": noise_summary(plan.config, trials[Stage.NOISE][plan.config.noise_loss]),
        "test_opened": len(openings),
        "losses": {
            loss: _loss(plan, loss, {stage: trials[stage][loss] for stage in trials}, selection, test)
            for loss in plan.config.loss_names
        },
        "time": _time(trials, sessions, slots, test),
    }


def _loss(
    plan: Plan,
    loss: str,
    trials: Mapping[str, Sequence[FrozenTrial]],
    selection: Selection | None,
    test: Mapping[str, Any] | None,
) -> dict[str, Any]:
    searched, confirmed, objective = trials[Stage.SEARCH], trials[Stage.SELECT], plan.config.search.objective
    states = [trial.state for trial in searched]
    complete = [trial for trial in searched if trial.state == TrialState.COMPLETE]
    best = finalists(complete, 1)[0] if complete else None
    default = searched[0] if searched else None
    chosen = selection.chosen.get(loss) if selection else None
    confirmed_default = selection.defaults.get(loss) if selection else None
    if selection is None and complete and confirmed:
        confirmed_default = confirmations(searched, confirmed, [0], objective)[0]
    params = chosen.params if chosen else best.user_attrs["params"] if best else None
    space = plan.spaces[loss]
    return {
        "trials": {
            "complete": states.count(TrialState.COMPLETE),
            "pruned": states.count(TrialState.PRUNED),
            "failed": states.count(TrialState.FAIL),
        },
        "epochs": sum(len(epochs_of(trial)) for trial in searched),
        "ended_early": plan.budget(loss).early_end(searched),
        "default": {
            "params": space.default,
            "value": mean_value(searched, default.user_attrs["params"]) if default and complete else None,
            "clipped": bool(space.clipped),
            "confirmed": _confirmed(confirmed_default),
            "final": _final(plan, trials[Stage.TEST], confirmed_default),
            "test": _tested(test, loss, confirmed_default),
        },
        "best": {
            "params": best.user_attrs["params"],
            "value": mean_value(complete, best.user_attrs["params"]),
            "number": best.number,
        }
        if best
        else None,
        "confirmed": {
            "params": dict(chosen.params),
            "number": chosen.number,
            "search_value": chosen.search_value,
            **(_confirmed(chosen) or {}),
        }
        if chosen
        else None,
        "final": _final(plan, trials[Stage.TEST], chosen),
        "test": _tested(test, loss, chosen),
        "anytime": incumbents(searched, partial(_value, plan), _confirmed_means(searched, confirmed, objective)),
        "diagnostics": diagnose(loss, space.parameters, plan.config.training, searched, params),
    }


def _value(plan: Plan, records: Sequence[EpochRecord]) -> float | None:
    """A trial's value so far; in a cross-validation only with all folds, since the first ones may be the easy ones."""
    trial_value = plan.trial_value(Stage.SEARCH)(records)
    return None if trial_value is None or (plan.split.folds and trial_value[0] < plan.steps) else trial_value[1]


def _confirmed_means(
    searched: Sequence[FrozenTrial], confirmed: Sequence[FrozenTrial], objective: str
) -> dict[int, float]:
    """The confirmed mean of every trial whose configuration has one."""
    numbers = {trial.user_attrs["configuration"] for trial in confirmed}
    found = confirmations(searched, confirmed, sorted(numbers), objective)
    return {
        trial.number: found[number].mean
        for group in by_configuration([trial for trial in searched if trial.state.is_finished()])
        for number in numbers & {trial.number for trial in group}
        if found[number].values
        for trial in group
    }


def _final(plan: Plan, trained: Sequence[FrozenTrial], entry: Confirmation | None) -> dict[str, Any] | None:
    """The validation value of the trainings for the test, each at its best epoch; None where nothing validates."""
    if entry is None or plan.config.final.train_on == "all":
        return None
    found = [
        (trial.value, trial.user_attrs["seed"])
        for trial in trained
        if trial.state == TrialState.COMPLETE
        and trial.user_attrs["configuration"] == entry.number
        and trial.value is not None
    ]
    if not found:
        return None
    return {key: value for key, value in over_seeds(*zip(*found, strict=True)).items() if key != "ci95"}


def _confirmed(entry: Confirmation | None) -> dict[str, Any] | None:
    if entry is None or not entry.values:
        return None
    return {key: value for key, value in over_seeds(entry.values).items() if key != "ci95"}


def _tested(test: Mapping[str, Any] | None, loss: str, entry: Confirmation | None) -> dict[str, Any] | None:
    """Each metric over the seeds of the first opening."""
    if test is None or entry is None:
        return None
    rows = [
        row for row in test["openings"][0]["scores"] if row["loss"] == loss and row["configuration"] == entry.number
    ]
    if not rows:
        return None
    seeds = [row["seed"] for row in rows]
    return {name: over_seeds([row["metrics"][name] for row in rows], seeds) for name in rows[0]["metrics"]}


def _time(
    trials: Mapping[str, Mapping[str, Sequence[FrozenTrial]]],
    sessions: Sequence[float],
    slots: int,
    test: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Seconds. Time between two sessions (a driver killed and started again) is nobody's."""
    of_search = [record for loss in trials[Stage.SEARCH].values() for trial in loss for record in epochs_of(trial)]
    of_all = [
        record for stage in trials.values() for loss in stage.values() for trial in loss for record in epochs_of(trial)
    ]
    moments = [record["end"] for record in of_all]
    moments += [opening["finished"] for opening in test["openings"]] if test else []
    ends = [*sessions, time.time() + 1][1:]
    wall = startup = search_wall = 0.0
    for start, end in zip(sessions, ends, strict=True):
        wall += max((moment - start for moment in moments if start <= moment < end), default=0.0)
        first = min((record["start"] for record in of_all if start <= record["start"] < end), default=start)
        startup += first - start
        mine = [record for record in of_search if start <= record["start"] < end]
        if mine:
            search_wall += max(record["end"] for record in mine) - min(record["start"] for record in mine)
    return {
        "wall_s": round(wall, 3),
        "startup_s": round(startup, 3),
        "search_wall_s": round(search_wall, 3),
        "trial_work_s": round(sum(record["end"] - record["start"] for record in of_search), 3),
        "slots": slots,
    }

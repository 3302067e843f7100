"""How far a search is, read from its storage without touching its data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.trial import TrialState
from pydantic import TypeAdapter

from search.config.secrets import expand
from search.config.sections.search import SearchSection
from search.plan.runs import RunFolder, stored_config
from search.study.budget import Budget, budget_of
from search.study.names import Stage, short_study_name, study_name
from search.study.records import epochs_trained
from search.study.storage import open_storage, stored_trials
from spaces.search_space import search_space
from trainables.training_config import TrainingConfig


def status_of(folder: RunFolder) -> dict[str, Any]:
    """The trials of every study of a search, by state, and what the search did last."""
    config = stored_config(folder)
    search = dict(config["search"])  # type: ignore[call-overload]
    losses = list(config["losses"])  # type: ignore[call-overload]
    address = search["storage"]
    courses = []
    if address or Path(folder.storage.removeprefix("sqlite:///")).exists():
        storage = open_storage(expand(address) if address else folder.storage)
        for stage in (Stage.NOISE, Stage.SEARCH, Stage.SELECT, Stage.TEST):
            for loss in losses:
                trials = stored_trials(storage, study_name(folder.name, loss, stage))
                if not trials:
                    continue
                states = [trial.state for trial in trials]
                complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
                budget = _stored_budget(config, loss) if stage == Stage.SEARCH else Budget(trials=len(trials))
                early = budget.early_end(trials)
                courses.append(
                    {
                        "course": short_study_name(loss, stage),
                        "running": states.count(TrialState.RUNNING),
                        "complete": len(complete),
                        "pruned": states.count(TrialState.PRUNED),
                        "failed": states.count(TrialState.FAIL),
                        "target": len(trials) if early else budget.most,
                        "epochs": epochs_trained(trials),
                        "budget": budget.epochs,
                        "ended_early": early,
                        "best": max((trial.values[0] for trial in complete), default=None),
                    }
                )
    return {"name": folder.name, "state": _state(folder, courses), "driver": folder.driver(), "courses": courses}


def _stored_budget(config: Mapping[str, Any], loss: str) -> Budget:
    search: SearchSection = TypeAdapter(SearchSection).validate_json(json.dumps(config["search"]))
    training: TrainingConfig = TypeAdapter(TrainingConfig).validate_json(json.dumps(config["training"]))
    wishes = config["space"]
    space = search_space(loss, training, wishes.get(loss, {}), wishes.get("training", {}))
    return budget_of(loss, space, search, epochs_each=training.epochs * (config["split"]["folds"] or 1))


def _state(folder: RunFolder, courses: list[dict[str, Any]]) -> str:
    if folder.test.exists():
        return "tested"
    if any("@final" in row["course"] for row in courses):
        return "training for the test"
    if folder.selection.exists():
        return "selected"
    if any("@confirm" in row["course"] for row in courses):
        return "confirming"
    return "measuring the noise" if courses and all("@noise" in row["course"] for row in courses) else "searching"

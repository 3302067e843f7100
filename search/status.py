"""How far a search is, read from its storage without touching its data."""

from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from search.plan import CONFIRM, FINAL, SEARCH, course_name, study_name
from search.runs import RunFolder, stored_config
from search.secrets import expand
from search.study import open_storage, stored_trials


def status_of(folder: RunFolder) -> dict[str, Any]:
    """The trials of every study of a search, by state, and what the search did last."""
    config = stored_config(folder)
    search = dict(config["search"])  # type: ignore[call-overload]
    losses = list(config["losses"])  # type: ignore[call-overload]
    address = search["storage"]
    courses = []
    if address or Path(folder.storage.removeprefix("sqlite:///")).exists():
        storage = open_storage(expand(address) if address else folder.storage)
        for stage in (SEARCH, CONFIRM, FINAL):
            for loss in losses:
                trials = stored_trials(storage, study_name(folder.name, loss, stage))
                if not trials:
                    continue
                states = [trial.state for trial in trials]
                complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
                courses.append(
                    {
                        "course": course_name(loss, stage),
                        "running": states.count(TrialState.RUNNING),
                        "complete": len(complete),
                        "pruned": states.count(TrialState.PRUNED),
                        "failed": states.count(TrialState.FAIL),
                        "target": search["trials"] if stage == SEARCH else len(trials),
                        "best": max((trial.values[0] for trial in complete), default=None),
                    }
                )
    return {"name": folder.name, "state": _state(folder, courses), "driver": folder.driver(), "courses": courses}


def _state(folder: RunFolder, courses: list[dict[str, Any]]) -> str:
    if folder.test.exists():
        return "tested"
    if any("@final" in row["course"] for row in courses):
        return "training for the test"
    if folder.selection.exists():
        return "selected"
    return "confirming" if any("@confirm" in row["course"] for row in courses) else "searching"

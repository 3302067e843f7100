"""The studies of a search, read from the lines of its journal without Optuna's storage."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.distributions import json_to_distribution

STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")


@dataclass(kw_only=True)
class StoredTrial:
    """A trial as its lines have it. ``study`` is its name below the search's, ``steps`` are (step, value) in order."""

    search: str
    study: str
    number: int
    state: str
    attributes: dict[str, Any]
    values: tuple[float, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    steps: tuple[tuple[int, float], ...] = ()

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The records of its epochs, in order."""
        return [self.attributes[key] for key in sorted(self.attributes) if key.startswith("epoch:")]

    @property
    def name(self) -> str:
        """How sentences call it."""
        return f"{self.search}/{self.study} trial {self.number}"


def read_trials(journal: Path) -> list[StoredTrial]:
    """All trials of all studies in a journal; none before there is one."""
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    operations = [json.loads(line) for line in lines]
    while operations and operations[-1]["left"]:  # the end of this transaction is not written yet
        operations.pop()
    studies: list[str] = []
    trials: list[StoredTrial] = []
    for line in operations:
        match line["op_code"]:
            case 0:
                studies.append(line["study_name"])
            case 4:
                search, _, study = studies[line["study_id"]].partition("/")
                number = sum((trial.search, trial.study) == (search, study) for trial in trials)
                state, attributes = STATES[line.get("state", 0)], dict(line.get("user_attrs", {}))
                trials.append(
                    StoredTrial(search=search, study=study, number=number, state=state, attributes=attributes)
                )
            case 5:
                value = json_to_distribution(line["distribution"]).to_external_repr(line["param_value_internal"])
                trials[line["trial_id"]].params[line["param_name"]] = value
            case 6:
                trials[line["trial_id"]].state = STATES[line["state"]]
                trials[line["trial_id"]].values = tuple(line["values"] or ())
            case 7:
                trials[line["trial_id"]].steps += ((line["step"], line["intermediate_value"]),)
            case 8:
                trials[line["trial_id"]].attributes |= line["user_attr"]
    return sorted(trials, key=lambda trial: (trial.search, trial.study, trial.number))


def count_epochs(journal: Path) -> int:
    """How many epochs are stored."""
    return sum(len(trial.epochs) for trial in read_trials(journal))


def epochs_of_running(journal: Path) -> dict[str, int]:
    """The number of epochs that each running trial has stored, by its name."""
    return {trial.name: len(trial.epochs) for trial in read_trials(journal) if trial.state == "RUNNING"}

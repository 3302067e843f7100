"""Whether the studies hold exactly the trials asked for, each epoch once, and what an undisturbed search came to."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from soak.oracle.studies import StoredTrial

NOT_COMPARED = ("outcome",)
"""Attributes that say how a trial ended in words; its state and its epochs are compared."""
TIMES = ("start", "end", "checkpoint")
"""Of an epoch: when it was trained, and by which attempt."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """So many trials of each loss in each search, each of so many epochs, in each of so many folds where it has any."""

    searches: tuple[str, ...]
    losses: tuple[str, ...]
    trials: int
    epochs: int
    folds: int = 0


def trial_differences(trials: Sequence[StoredTrial], asked: Asked) -> list[str]:
    """What is missing, twice there or unfinished."""
    said = []
    for search in asked.searches:
        for loss in asked.losses:
            numbers = [trial.number for trial in trials if (trial.search, trial.study) == (search, loss)]
            if numbers != list(range(asked.trials)):
                said.append(f"{search}/{loss} has the trials {numbers} and was asked for {asked.trials}.")
    for trial in trials:
        said += _of_one(trial, asked)
    return said


def _of_one(trial: StoredTrial, asked: Asked) -> list[str]:
    if trial.state != "COMPLETE":
        return [f"{trial.name} is {trial.state}: {trial.attributes.get('outcome', 'no outcome')}."]
    said = []
    alone = trial.attributes.keys() & {"fold", "half"}  # for the test, or to confirm
    folds = range(1, asked.folds + 1) if asked.folds and not alone else [None]
    wanted = [(fold, epoch) for fold in folds for epoch in range(1, trial.attributes.get("epochs", asked.epochs) + 1)]
    epochs = [(record.get("fold"), record["epoch"]) for record in trial.epochs]
    if epochs != wanted:
        said.append(f"{trial.name} has the epochs {epochs}, not {wanted}.")
    doubled = [step for step, times in Counter(step for step, _ in trial.steps).items() if times > 1]
    if doubled:
        said.append(f"{trial.name} has the steps {doubled} more than once.")
    if len(trial.values) != 1 or not math.isfinite(trial.values[0]):
        said.append(f"{trial.name} is COMPLETE with the values {trial.values}.")
    elif trial.steps and trial.values[0] != trial.steps[-1][1]:
        said.append(f"{trial.name} has the value {trial.values[0]}, and after its last step {trial.steps[-1][1]}.")
    best = [max(record["metrics"].get("map_at_r", -1) for record in trial.epochs[:end]) for end, _ in trial.steps]
    if folds == [None] and "fold" not in trial.attributes and best != [value for _, value in trial.steps]:
        said.append(f"{trial.name} has the steps {trial.steps}, and its epochs' best values are {best}.")
    return said


def undisturbed_differences(
    trials: Sequence[StoredTrial], undisturbed: Sequence[StoredTrial], called: Mapping[str, str]
) -> list[str]:
    """Where the trials are not those of a search with the same seeds that nothing was done to.

    ``called`` maps a search's name to that of its undisturbed twin.
    """
    found = {(called[trial.search], trial.study, trial.number): trial for trial in trials}
    wanted = {(trial.search, trial.study, trial.number): trial for trial in undisturbed}
    said = [f"{wanted[key].name} is missing; undisturbed it is there." for key in sorted(wanted.keys() - found.keys())]
    said += [f"{found[key].name} is there; undisturbed it is not." for key in sorted(found.keys() - wanted.keys())]
    for key in sorted(found.keys() & wanted.keys()):
        here, there = _comparable(found[key]), _comparable(wanted[key])
        for part in sorted(here.keys() | there.keys()):
            if here.get(part) != there.get(part):
                said.append(f"{found[key].name}: {part} is {here.get(part)}, undisturbed {there.get(part)}.")
    return said


def _comparable(trial: StoredTrial) -> dict[str, Any]:
    """What does not depend on when and in how many attempts a trial was trained."""
    content: dict[str, Any] = {"state": trial.state, "values": trial.values, "steps": trial.steps}
    for key, value in trial.attributes.items():
        if key.startswith("epoch:"):
            content[key] = {name: part for name, part in value.items() if name not in TIMES}
        elif key not in NOT_COMPARED:
            content[key] = value
    return content

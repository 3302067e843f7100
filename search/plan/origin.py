"""A search that begins with the trials of another one: ``search.from``.

The other's finished search trials are copied into the studies of the new search, where they count as its own. A copy
keeps its number, state, values, parameters and attributes, and says in ``copied_from`` where it comes from.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from search.config.search_config import SearchConfig, parse_config
from search.plan.checks.findings import Findings
from search.plan.differences import differences
from search.plan.runs import RunFolder, existing_run, stored_config
from search.plan.search import Search
from search.plan.stored import StoredSearch
from search.study.names import Stage, study_name
from search.study.storage import retry
from trainables.mistakes import Mistakes

EQUAL = ("dataset", "split", "model", "training", "losses", "space", "search.objective", "metrics")
"""What a trial rests on, and so has to be the same in both searches."""

EXCEPT = ("dataset.cache",)
COPIES = "copies"
"""A study's attribute: the other search, and the numbers of its trials that are copied, in this order."""

COPIED_FROM = "copied_from"


def check_origin(found: Findings, config: SearchConfig, runs: Path) -> None:
    """The search that ``config`` begins with is there, and its trials could be this search's own."""
    origin = config.search.origin
    if origin is None:
        return
    try:
        folder = existing_run(runs, origin)
        stored = parse_config(stored_config(folder))
    except Mistakes as error:
        found.add(f"search.from: {sentence}" for sentence in error.sentences)
        return
    found.add(_different(found, origin, stored, config))
    found.add(_without_trials(StoredSearch(folder), stored.loss_names))


def _different(found: Findings, origin: str, stored: SearchConfig, config: SearchConfig) -> Iterator[str]:
    for key, before, after in differences(stored.model_dump(mode="json"), config.model_dump(mode="json")):
        compared = any(f"{key}.".startswith(f"{section}.") for section in EQUAL) and key not in EXCEPT
        if compared and not found.left_out.touched(key):
            yield (
                f"{key}: the search begins with the trials of {origin} (search.from), where it is {before!r}, and here "
                f"it is {after!r}; make it the same, or remove search.from."
            )


def _without_trials(origin: StoredSearch, losses: Sequence[str]) -> Iterator[str]:
    """Losses with nothing to copy, or whose default would not be trial 0."""
    for loss in losses:
        trials = origin.trials(loss)
        if not trials or not trials[0].state.is_finished():
            yield (
                f"search.from: trial 0 of {origin.name}/{loss}, the default, has not ended yet; `holdout run` the file "
                f"of {origin.name} first, or remove search.from."
            )


def copy_trials(search: Search) -> int:
    """Copy the trials that ``search`` begins with, where they are not there yet; gives how many were copied.

    Which ones are copied is written down before the first, and each is copied in one transaction, so that a process
    that goes on after a kill copies the rest and nothing twice. Nothing else may be added to the studies before this.
    """
    origin = search.config.search.origin
    if origin is None:
        return 0
    source = StoredSearch(RunFolder(search.plan.folder.runs, origin))
    return sum(_copy_study(search, source, loss) for loss in search.config.loss_names)


def _copy_study(search: Search, source: StoredSearch, loss: str) -> int:
    study = search.study(loss, Stage.SEARCH)
    copies = study.attributes().get(COPIES)
    if copies is None:
        assert not study.trials(), "a study with trials of its own before those that it begins with"
        numbers = [trial.number for trial in source.trials(loss) if trial.state.is_finished()]
        copies = {"search": source.name, "numbers": numbers}
        study.set_attributes({COPIES: copies})
    if _copied(study.trials()) == len(copies["numbers"]):
        return 0
    return _copy_missing(
        search.storage, study_name(search.name, loss, Stage.SEARCH), source.name, copies["numbers"], source.trials(loss)
    )


def _copied(trials: Sequence[FrozenTrial]) -> int:
    return sum(COPIED_FROM in trial.user_attrs for trial in trials)


@retry  # asks again how many there are, so that a copy whose answer was lost is not made twice
def _copy_missing(
    storage: RDBStorage, study: str, origin: str, numbers: Sequence[int], trials: Sequence[FrozenTrial]
) -> int:
    target = optuna.load_study(study_name=study, storage=storage)
    there = _copied(target.get_trials(deepcopy=False))
    for number in numbers[there:]:
        target.add_trial(_copy(trials[number], origin, numbers))
    return len(numbers) - there


def _copy(trial: FrozenTrial, origin: str, numbers: Sequence[int]) -> FrozenTrial:
    """``trial`` as it stands in the new study; where unfinished ones before it were left out, numbers move up."""
    attributes: dict[str, Any] = {**trial.user_attrs, COPIED_FROM: {"search": origin, "number": trial.number}}
    first = attributes.pop("replicate_of", None)
    if first in numbers:
        attributes["replicate_of"] = numbers.index(first)
    result = copy.deepcopy(trial)
    result.user_attrs = attributes
    return result

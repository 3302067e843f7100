"""The trials that a search begins with: ``search.from``.

The other search's finished trials are copied into the studies of the new one, where they count as its own. A copy
keeps its number, state, values, parameters and attributes, and says in ``copied_from`` where it comes from.
"""

import copy
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from optuna.trial import FrozenTrial

from search.plan.runs import RunFolder
from search.plan.search import Search
from search.plan.stored import StoredSearch
from search.study.names import Stage

COPIES = "copies"
"""A study's attribute: the other search, and the numbers of its trials that are copied, in this order."""

COPIED_FROM = "copied_from"
"""A copy's attribute: the other search, and the trial's number there."""


def copy_trials(search: Search) -> int:
    """Copy the trials that ``search`` begins with, where they are not there yet; gives how many were copied.

    Which ones are copied is written down before, and those of a loss are copied in one transaction, so that a process
    that goes on after a kill copies the same ones and nothing twice. Nothing else may be added to the studies before.
    """
    origin = search.config.search.origin
    if origin is None:
        return 0
    with closing(StoredSearch(RunFolder(search.plan.folder.runs, origin))) as source:
        return sum(_copy_study(search, source, loss) for loss in search.config.loss_names)


def _copy_study(search: Search, source: StoredSearch, loss: str) -> int:
    study = search.study(loss, Stage.SEARCH)
    copies = study.attributes().get(COPIES)
    if copies is None:
        assert not study.trials(), "a study with trials of its own before those that it begins with"
        numbers = [trial.number for trial in source.trials(loss) if trial.state.is_finished()]
        copies = {"search": source.name, "numbers": numbers}
        study.set_attributes({COPIES: copies})
    if _copied(study.trials()):
        return 0
    trials = source.trials(loss)
    study.add(_copy(trials[number], source.name, copies["numbers"]) for number in copies["numbers"])
    return len(copies["numbers"])


def _copied(trials: Sequence[FrozenTrial]) -> bool:
    return any(COPIED_FROM in trial.user_attrs for trial in trials)


def _copy(trial: FrozenTrial, origin: str, numbers: Sequence[int]) -> FrozenTrial:
    """``trial`` as it stands in the new study; where unfinished ones before it were left out, numbers move up."""
    attributes: dict[str, Any] = {**trial.user_attrs, COPIED_FROM: {"search": origin, "number": trial.number}}
    first = attributes.pop("replicate_of", None)
    if first in numbers:
        attributes["replicate_of"] = numbers.index(first)
    result = copy.deepcopy(trial)
    result.user_attrs = attributes
    return result

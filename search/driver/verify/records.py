"""The outcome of a check, and the records of a search that ``holdout verify`` checks."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Engine

from search.config.validation import Findings
from search.plan.checks.data import check_further_splits, split_of
from search.plan.checks.parts import check_spaces
from search.plan.plan import Plan
from search.plan.runs import RunFolder, trusted_config
from search.plan.search import OpenedSearch
from search.plan.stored import StoredSearch
from search.stages import Stage, study_name
from search.study import StorageCopy, stored_attributes, stored_reports, stored_trials
from search.trust import CHECKPOINTS, STORAGE

LONGEST = 160
"""Most characters of a value in a sentence."""


class Check(NamedTuple):
    """The outcome of checking ``what``: the first problem, or None.

    ``is_there`` is False if there is nothing to check yet.
    """

    what: str
    problem: str | None = None
    is_there: bool = True


def check(what: str, problems: Iterable[str]) -> Check:
    """Return the check of ``what`` with the first of ``problems``; do not compute the others."""
    return Check(what, next(iter(problems), None))


def differing(what: str, stored: Any, recomputed: Any) -> Iterator[str]:
    """Yield a sentence for each place at which two JSON values differ."""
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        for key in dict.fromkeys((*stored, *recomputed)):
            if stored.get(key) is None and recomputed.get(key) is None and (key in stored) != (key in recomputed):
                yield f"{what} {key}: the key is {'stored' if key in stored else 'recomputed'} only."
            yield from differing(f"{what} {key}", stored.get(key), recomputed.get(key))
    elif _is_list(stored) and _is_list(recomputed) and len(stored) == len(recomputed):
        for position, pair in enumerate(zip(stored, recomputed, strict=True)):
            yield from differing(f"{what} {position}", *pair)
    elif stored != recomputed:  # including lists of different lengths
        yield f"{what}: {shown(stored)} is stored, but {shown(recomputed)} is recomputed."


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def shown(value: Any) -> str:
    """Return ``value`` as JSON text of at most :data:`LONGEST` characters."""
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def as_json(value: Any) -> Any:
    """Return ``value`` as read back from a JSON file: tuples become lists, keys become strings."""
    return json.loads(json.dumps(value))


@dataclass(frozen=True, kw_only=True)
class Records:
    """A search's plan, derived again from its file and its data set, and the database of its studies."""

    plan: Plan
    engine: Engine

    @cached_property
    def search(self) -> OpenedSearch:
        """The search on a copy of the stored studies; nothing is written to the database."""
        return self.search_without(())

    def search_without(self, names: Collection[str]) -> OpenedSearch:
        """Return the search as it was before the studies ``names`` were created."""
        return OpenedSearch(plan=self.plan, storage=StorageCopy(self.engine, without=names))

    def name_of(self, loss: str, stage: Stage) -> str:
        """Return the name of the study of ``loss`` in ``stage``."""
        return study_name(self.plan.config.name, loss, stage)

    def losses(self, stage: Stage) -> tuple[str, ...]:
        """Return the losses that have a study in ``stage``."""
        config = self.plan.config
        return (config.noise_loss,) if stage is Stage.NOISE else config.loss_names

    def numbers(self, loss: str, stage: Stage) -> list[int]:
        """Return the stored trial numbers of the study of ``loss`` in ``stage``."""
        return [trial.number for trial in stored_trials(self.engine, self.name_of(loss, stage))]

    def attributes(self, loss: str, stage: Stage) -> dict[str, Any]:
        """Return the stored user attributes of the study of ``loss`` in ``stage``."""
        return stored_attributes(self.engine, self.name_of(loss, stage))

    def reports(self, loss: str) -> list[tuple[int, int, float]]:
        """Return the trial number, step and value of every report to the search study of ``loss``, in report order."""
        return stored_reports(self.engine, self.name_of(loss, Stage.SEARCH))


def plan_from_rules(folder: RunFolder) -> Plan:
    """Return the plan that follows from a search's file and its data set, without checking this machine's resources.

    Raises:
        Mistakes: the file or the data set cannot be read, or names a place or code that is not allowed.
    """
    config = trusted_config(folder, addresses=(STORAGE, CHECKPOINTS))
    found = Findings()
    data = split_of(found, config)
    further_splits = check_further_splits(found, config)
    spaces = check_spaces(found, config, accepted=True)
    found.raise_if_any()
    assert data is not None, "no mistake was found, but there is no split"
    return Plan(
        config=config,
        folder=folder,
        split=data.split,
        spaces=spaces,
        further_splits=further_splits,
        predecessor=folder.predecessor_name(),
    )


def records_of(plan: Plan) -> Records | None:
    """Return the records of the search with this plan; None if it has no studies yet."""
    engine = StoredSearch(plan.folder).storage
    return None if engine is None else Records(plan=plan, engine=engine)

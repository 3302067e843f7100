"""The records of a search that `holdout verify` checks, and the outcome of a check."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Engine

from search.config.search_config import parse_stored
from search.config.validation import Findings
from search.plan.checks.data import check_further_splits, split_of
from search.plan.checks.parts import check_spaces
from search.plan.plan import Plan
from search.plan.runs import RunFolder
from search.plan.search import OpenedSearch
from search.plan.stored import StoredSearch
from search.stages import Stage, study_name
from search.study import StorageCopy, stored_attributes, stored_reports, stored_trials

# What a check came to, and how two values are told apart.

LONGEST = 160


class Check(NamedTuple):
    """``what`` was looked at, and the first sentence that says what is wrong with it, if any.

    ``is_there`` is false where there is nothing to look at yet.
    """

    what: str
    problem: str | None = None
    is_there: bool = True


def check(what: str, problems: Iterable[str]) -> Check:
    """``what`` with the first of ``problems``, which are not looked for beyond."""
    return Check(what, next(iter(problems), None))


def differing(what: str, stored: Any, recomputed: Any) -> Iterator[str]:
    """A sentence for each place at which two JSON values differ."""
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        for key in dict.fromkeys((*stored, *recomputed)):
            yield from differing(f"{what} {key}", stored.get(key), recomputed.get(key))
    elif _is_list(stored) and _is_list(recomputed) and len(stored) == len(recomputed):
        for position, pair in enumerate(zip(stored, recomputed, strict=True)):
            yield from differing(f"{what} {position}", *pair)
    elif stored != recomputed:  # also lists that are not equally long
        yield f"{what}: {shown(stored)} is stored, and {shown(recomputed)} is recomputed."


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def shown(value: Any) -> str:
    """``value`` in a sentence."""
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def as_json(value: Any) -> Any:
    """``value`` as a file would hold it: tuples are lists and keys are strings."""
    return json.loads(json.dumps(value))


# The records of a search, and what follows from its file: all that the checks look at.


@dataclass(frozen=True, kw_only=True)
class Records:
    """A search's plan, made anew from its file and its data set, and the database of its studies."""

    plan: Plan
    engine: Engine

    @cached_property
    def search(self) -> OpenedSearch:
        """The search with its studies as they are stored; nothing that is done with it is written."""
        return self.search_without(())

    def search_without(self, names: Collection[str]) -> OpenedSearch:
        """The same before the studies called ``names`` were made."""
        return OpenedSearch(plan=self.plan, storage=StorageCopy(self.engine, without=names))

    def name_of(self, loss: str, stage: Stage) -> str:
        """The name of a loss's study in a stage."""
        return study_name(self.plan.config.name, loss, stage)

    def losses(self, stage: Stage) -> tuple[str, ...]:
        """The losses that have a study in ``stage``."""
        config = self.plan.config
        return (config.noise_loss,) if stage is Stage.NOISE else config.loss_names

    def numbers(self, loss: str, stage: Stage) -> list[int]:
        """The numbers of the trials of a loss's study in a stage, as they are stored."""
        return [trial.number for trial in stored_trials(self.engine, self.name_of(loss, stage))]

    def attributes(self, loss: str, stage: Stage) -> dict[str, Any]:
        """The attributes of a loss's study in a stage, as they are stored."""
        return stored_attributes(self.engine, self.name_of(loss, stage))

    def reports(self, loss: str) -> list[tuple[int, int, float]]:
        """Number, step and value of all that the trials of a loss's search reported, in that order."""
        return stored_reports(self.engine, self.name_of(loss, Stage.SEARCH))


def plan_from_rules(folder: RunFolder) -> Plan:
    """The plan that follows from a search's file and its data set; whether it could be trained here is not asked.

    Raises:
        Mistakes: the file or the data set cannot be read.
    """
    config = parse_stored(folder.config)
    found = Findings()
    data = split_of(found, config)
    further_splits = check_further_splits(found, config)
    spaces = check_spaces(found, config, accepted=True)
    found.raise_if_any()
    assert data is not None, "nothing was found, and nothing was made"
    return Plan(config=config, folder=folder, split=data.split, spaces=spaces, further_splits=further_splits)


def records_of(plan: Plan) -> Records | None:
    """The records of the search with this plan; None where it has no studies yet."""
    engine = StoredSearch(plan.folder).storage
    return None if engine is None else Records(plan=plan, engine=engine)

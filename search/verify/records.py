"""The records of a search, and what follows from its file: all that the checks look at."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Engine

from search.config.search_config import parse_stored
from search.plan.checks.data import check_further_splits, split_of
from search.plan.checks.findings import Findings
from search.plan.checks.spaces import check_spaces
from search.plan.plan import Plan
from search.plan.runs import RunFolder
from search.plan.search import Search
from search.plan.stored import StoredSearch
from search.study.names import Stage, study_name
from search.study.storage.copy import StorageCopy
from search.study.storage.read import stored_attributes, stored_reports, stored_trials


@dataclass(frozen=True, kw_only=True)
class Records:
    """A search's plan, made anew from its file and its data set, and the database of its studies."""

    plan: Plan
    engine: Engine

    @cached_property
    def search(self) -> Search:
        """The search with its studies as they are stored; nothing that is done with it is written."""
        return self.search_without(())

    def search_without(self, names: Collection[str]) -> Search:
        """The same before the studies called ``names`` were made."""
        return Search(plan=self.plan, storage=StorageCopy(self.engine, without=names))

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

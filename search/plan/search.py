"""An opened search: its plan, its storage, and where to speak."""

from dataclasses import dataclass
from typing import Any

from optuna.storages import RDBStorage
from rich.console import Console

from search import STARTED
from search.config.search_config import SearchConfig
from search.config.secrets import expand
from search.plan.plan import Plan
from search.report.summary import write_summary
from search.study.names import Stage, study_name
from search.study.study import LossStudy, open_storage, stored_trials
from trainables.files import write_json, write_whole


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search whose folder and storage exist."""

    plan: Plan
    storage: RDBStorage
    console: Console

    @property
    def config(self) -> SearchConfig:
        """The search file."""
        return self.plan.config

    def study(self, loss: str, stage: Stage) -> LossStudy:
        """A loss's study in a stage."""
        return self.plan.study(self.storage, loss, stage)

    def is_done(self, stage: Stage) -> bool:
        """Whether ``stage`` has nothing left to do."""
        folder = self.plan.folder
        if stage == "select":
            return folder.selection.exists()
        if stage == "test":
            return folder.test.exists()
        if stage == Stage.NOISE:
            noise = self.config.noise
            trials = stored_trials(self.storage, study_name(self.config.name, self.config.noise_loss, Stage.NOISE))
            return sum(trial.state.is_finished() for trial in trials) >= noise.seeds + noise.splits
        return all(self.plan.budget(loss).done(self.study(loss, Stage.SEARCH).trials()) for loss in self.config.losses)

    def summary(self) -> dict[str, Any]:
        """``summary.json``, written anew from the records."""
        attributes = self._first_study.attributes()
        return write_summary(self.plan, self.storage, attributes.get("sessions", []), attributes.get("slots", 0))

    def begin_session(self, slots: int) -> None:
        """Remember that a driver began, when, and how many trials it runs at once."""
        sessions = self._first_study.attributes().get("sessions", [])
        self._first_study.set_attributes({"sessions": [*sessions, STARTED], "slots": slots})

    @property
    def _first_study(self) -> LossStudy:
        return self.study(self.config.losses[0], Stage.SEARCH)


def open_search(plan: Plan, console: Console) -> Search:
    """Open a search's storage and write down its plan; both may be there already."""
    folder = plan.folder
    folder.path.mkdir(parents=True, exist_ok=True)
    write_json(folder.split, plan.split.to_json())
    write_whole(folder.config, lambda file: file.write(plan.config.to_yaml().encode()))
    address = plan.config.search.storage
    return Search(plan=plan, storage=open_storage(expand(address) if address else folder.storage), console=console)

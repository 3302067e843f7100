"""A search as it is stored, for reading: neither its images nor its losses have to be known here."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial
from sqlalchemy import Engine

from search.config.secrets import expand
from search.plan.runs import RunFolder, existing_run, stored_config
from search.study.names import Stage, short_study_name, study_name
from search.study.storage.read import read_storage, stored_attributes, stored_tally, stored_trials
from search.study.tally import Tally
from trainables.files.whole import reading
from trainables.mistakes import Mistakes, suggestion


@dataclass(frozen=True)
class StoredSearch:
    """The search in ``folder``; nothing is written, and only its storage is opened."""

    folder: RunFolder

    @property
    def name(self) -> str:
        """The search's name."""
        return self.folder.name

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The resolved search file, as it was stored."""
        content: Mapping[str, Any] = stored_config(self.folder)
        with reading(
            self.folder.config, f"restore it from a copy, or `holdout run` the file of {self.name} in another folder"
        ):
            _ = content["losses"][0], content["search"]["storage"], content["checkpoints"]["storage_path"]
        return content

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of its losses."""
        return tuple(entry if isinstance(entry, str) else entry["name"] for entry in self.config["losses"])

    @property
    def storage_url(self) -> str:
        """The address of its studies' database, with what the environment fills in."""
        address = self.config["search"]["storage"]
        return expand(address) if address else self.folder.storage

    @cached_property
    def storage(self) -> Engine | None:
        """Its studies' database; None where none was made yet."""
        url = self.storage_url
        if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
            return None
        engine = read_storage(url)
        weakref.finalize(self, engine.dispose)  # a connection that is only dropped is open until somebody looks
        return engine

    def close(self) -> None:
        """Let go of its studies' database, to which there are only so many connections; what is read opens it again."""
        if engine := self.__dict__.pop("storage", None):
            engine.dispose()

    def trials(self, loss: str, stage: Stage = Stage.SEARCH) -> list[FrozenTrial]:
        """The trials of a loss's study in a stage; none where it has not begun."""
        return stored_trials(self.storage, study_name(self.name, loss, stage)) if self.storage else []

    def tally(self, loss: str, stage: Stage) -> Tally:
        """How many trials of a loss's study in a stage are in which state."""
        return stored_tally(self.storage, study_name(self.name, loss, stage)) if self.storage else Tally()

    def attributes(self, loss: str, stage: Stage = Stage.SEARCH) -> dict[str, Any]:
        """The user attributes of a loss's study in a stage."""
        return stored_attributes(self.storage, study_name(self.name, loss, stage)) if self.storage else {}

    def trial_directory(self, study: str, number: int) -> str:
        """The folder or URL of a trial's checkpoints and logs; ``study`` as in ``mpa`` or ``mpa@confirm``."""
        shared = self.config["checkpoints"]["storage_path"] or str(self.folder.runs.resolve())
        return f"{shared.rstrip('/')}/{self.name}/trials/{study}/{number:04d}"

    def trials_of(self, study: str) -> list[FrozenTrial]:
        """The trials of the study called ``study`` below the search's name, as in ``mpa`` or ``mpa@confirm``.

        Raises:
            Mistakes: the search has no such loss or stage.
        """
        known = {short_study_name(loss, stage): (loss, stage) for loss in self.losses for stage in Stage}
        if study not in known:
            raise Mistakes(
                f"{self.name} has no loss {study!r}{suggestion(study, known)}; it has {', '.join(self.losses)}, and "
                f"their later trainings as in {self.losses[0]}@confirm and {self.losses[0]}@final."
            )
        return self.trials(*known[study])

    def trial_of(self, study: str, number: int) -> FrozenTrial:
        """Trial ``number`` of such a study.

        Raises:
            Mistakes: the search has no such loss, stage or trial.
        """
        trials = self.trials_of(study)
        if not 0 <= number < len(trials):
            numbers = f"trials 0 to {len(trials) - 1}" if trials else "no trial yet"
            raise Mistakes(f"{self.name}/{study} has no trial {number}; it has {numbers}.")
        return trials[number]


def stored_search(runs: Path, name: str) -> StoredSearch:
    """The search ``name`` below ``runs``.

    Raises:
        Mistakes: there is none.
    """
    return StoredSearch(existing_run(runs, name))

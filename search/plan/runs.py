"""The runs folder: one folder a search or campaign."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import yaml

from search.config.campaign import CampaignConfig, read_config
from search.config.names import is_plain_name
from search.config.yaml_file import read_yaml
from trainables.data.split import ClassSplit
from trainables.files import read_json, reading, write_json, write_text
from trainables.mistakes import Mistakes, suggestion

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFolder:
    """The files of the search ``name`` below ``runs``."""

    runs: Path
    name: str

    @property
    def path(self) -> Path:
        """The search's own folder."""
        return self.runs / self.name

    @property
    def config(self) -> Path:
        """The resolved search file."""
        return self.path / "search.yaml"

    @property
    def campaign(self) -> Path:
        """The campaign file, where the name is a campaign's."""
        return self.path / "campaign.yaml"

    @property
    def is_campaign(self) -> bool:
        """Whether there is a campaign of this name; of what can be no name there is none."""
        return is_plain_name(self.name) and self.campaign.is_file()

    @property
    def split(self) -> Path:
        """The class split, with its digest."""
        return self.path / "split.json"

    @property
    def storage(self) -> str:
        """The studies' database where the search file names none."""
        return f"sqlite:///{self.path.resolve() / 'study.db'}"

    @property
    def selection(self) -> Path:
        """The frozen selection."""
        return self.path / "selection.json"

    @property
    def test(self) -> Path:
        """The test results."""
        return self.path / "test.json"

    @property
    def summary(self) -> Path:
        """What the search came to so far."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """What it came to, in pictures."""
        return self.path / "report.html"

    def model(self, loss: str) -> Path:
        """The chosen model of a loss, as a folder that :func:`holdout.load` takes."""
        return self.path / "models" / loss

    @property
    def openings(self) -> Path:
        """The ledger of test openings, shared by all searches of the runs folder."""
        return self.runs / "test_openings.jsonl"

    @property
    def trained_on_opened(self) -> Path:
        """What was opened of the training images before the search began; no file where nothing was."""
        return self.path / "trained_on_opened.json"

    @property
    def tracking(self) -> str:
        """MLflow's database where the search file names no server."""
        return f"sqlite:///{self.runs.resolve() / 'mlflow.db'}"

    @property
    def _lock(self) -> filelock.FileLock:
        return filelock.FileLock(self.path / ".driver.lock", timeout=0)

    @property
    def _holder(self) -> Path:
        return self.path / ".driver"

    @property
    def lock_files(self) -> tuple[Path, ...]:
        """What only says that a process holds the search, or held it."""
        return Path(self._lock.lock_file), self._holder

    def driver(self) -> str | None:
        """Which process runs the search now, in words; None where nobody does."""
        try:
            with self._lock:
                return None
        except filelock.Timeout:
            with suppress(FileNotFoundError):  # just begun, or just ended
                return self._holder.read_text(errors="replace").strip()
            return "another process"

    @contextmanager
    def only_driver(self) -> Iterator[None]:
        """Hold the search for this process alone. Where nothing is written meanwhile, no trace stays.

        Raises:
            Mistakes: another process holds it.
        """
        try:
            with folder_if_needed(self.path), self._lock as lock:
                try:
                    self._holder.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
                    yield
                finally:
                    self._holder.unlink(missing_ok=True)
                    if [*self.path.iterdir()] == [lock_file := Path(lock.lock_file)]:
                        lock_file.unlink()  # while it is held: who waits for it sees that it is gone and makes it anew
        except filelock.Timeout:
            raise Mistakes(
                f"The search {self.name} is being run by {self.driver()}; wait for it, or end it and give the command "
                "again."
            ) from None


@contextmanager
def folder_if_needed(path: Path) -> Iterator[None]:
    """The folder ``path``; what had to be made for it is removed again if nothing is in it at the end."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in made:
            with suppress(OSError):  # something is in it
                folder.rmdir()


def find_runs(runs: Path) -> list[RunFolder]:
    """All searches below ``runs``, by name."""
    return [RunFolder(runs, path.parent.name) for path in sorted(runs.glob("*/search.yaml"))]


def existing_run(runs: Path, name: str) -> RunFolder:
    """The search ``name``.

    Raises:
        Mistakes: there is none.
    """
    folder = RunFolder(runs, name)
    if not is_plain_name(name) or not folder.config.is_file():
        there = [run.name for run in find_runs(runs)]
        raise Mistakes(
            f"There is no search {name!r} in {runs}{suggestion(name, there)}; "
            f"there is: {', '.join(there) or 'none yet'}. `holdout run` makes one."
        )
    return folder


def stored_split(folder: RunFolder) -> ClassSplit:
    """The class split as it was stored.

    Raises:
        Mistakes: the file was edited.
    """
    with reading(folder.split):
        return ClassSplit.from_json(read_json(folder.split))


def stored_config(folder: RunFolder) -> dict[str, object]:
    """The resolved search file as it was stored."""
    return read_yaml(folder.config)


@dataclass(frozen=True)
class CampaignFolder:
    """The folder of the campaign ``name`` below ``runs``."""

    runs: Path
    name: str

    @property
    def config(self) -> Path:
        """The campaign file."""
        return self.runs / self.name / "campaign.yaml"

    @property
    def result(self) -> Path:
        """What the campaign came to."""
        return self.runs / self.name / "campaign.json"

    @property
    def report(self) -> Path:
        """What the campaign came to, in pictures."""
        return self.runs / self.name / "report.html"

    def begin(self, config: CampaignConfig) -> None:
        """Write down the campaign that begins, or goes on with another table or further labels."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_text(self.config, text)

    def end(self, result: Mapping[str, Any]) -> bool:
        """Write the result of the campaign, as JSON; return True if it changed."""
        before = self.result.read_bytes() if self.result.exists() else None
        write_json(self.result, result)
        return self.result.read_bytes() != before

    def searches(self) -> list[str]:
        """What the searches are called that the campaign began with; none before it began."""
        begun = RunFolder(self.runs, self.name).is_campaign
        return read_config(read_yaml(self.config)).search_names if begun else []


def campaign_of(runs: Path, name: str) -> CampaignFolder | None:
    """The campaign whose search is called ``name``; None where it is a search by itself."""
    for file in sorted(runs.glob("*/campaign.yaml")):
        campaign = CampaignFolder(runs, file.parent.name)
        if name.startswith(f"{campaign.name}-") and name in campaign.searches():
            return campaign
    return None


def refuse_member(runs: Path, name: str) -> None:
    """The searches of a campaign are chosen and tested together, and none of them by hand.

    Raises:
        Mistakes: ``name`` is such a search.
    """
    if campaign := campaign_of(runs, name):
        raise Mistakes(
            f"{name} is a search of the campaign {campaign.name}, whose searches are chosen and tested together; "
            "`holdout campaign` with its file goes on with all of them."
        )

"""The runs folder, with a folder for each search and campaign."""

import logging
import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import yaml

from search.addresses import results_page, sqlite_address
from search.config.names import is_plain_name
from search.config.yaml_file import read_yaml
from search.trust import CAMPAIGN_RECIPE, addresses_in, remember
from trainables.common.errors import Failure, InvalidInput, suggestion
from trainables.common.files import DAMAGED, read_json, remove_dead_drafts, write_json, write_text

if TYPE_CHECKING:
    from search.records.campaign import CampaignConfig

logger = logging.getLogger(__name__)


class File:
    """A file of a folder, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", owner: object = None) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """The files of the search ``name`` below ``runs``; ``images``: where they are, if not where its file says."""

    runs: Path
    name: str
    images: Path | None = None

    config = File("search.yaml")
    """The resolved search file."""
    campaign = File("campaign.yaml")
    """The campaign file, if the name is that of a campaign."""
    identity = File(".id")
    """The identity of the search, which its folders elsewhere and its runs in MLflow repeat; missing without these."""
    split = File("split.json")
    """The class split with its digest."""
    selection = File("selection.json")
    baselines = File("baselines.json")
    """The scores of the networks without training; missing if nothing was pretrained."""
    whitened = File("whitened.safetensors")
    """The whitening of the initial network's features, as a checkpoint of the layers behind its backbone."""
    journal = File("study.journal")
    """The studies, with all trials."""
    test = File("test.json")
    summary = File("summary.json")
    report = File("report.html")
    """The results as a page with figures."""
    trained_on_opened = File("trained_on_opened.json")
    """The record of training images that an earlier test had opened, written when the search starts."""
    experiment = File("mlflow.json")
    """The id of the search's experiment in MLflow and the address in its file; missing before MLflow holds it."""
    _holder = File(".driver")

    @property
    def path(self) -> Path:
        return self.runs / self.name

    def own_id(self) -> str:
        """Return the identity of the search or campaign, and write it the first time."""
        if not self.identity.exists():
            write_text(self.identity, f"{uuid.uuid4().hex}\n")
        return self.identity.read_text("utf-8").strip()

    @property
    def is_campaign(self) -> bool:
        return is_plain_name(self.name) and self.campaign.is_file()

    @property
    def tracking(self) -> str:
        return sqlite_address(self.runs.resolve() / "mlflow.db")

    @property
    def openings(self) -> Path:
        """The ledger of test openings, shared by all searches in the runs folder."""
        return self.runs / "test_openings.jsonl"

    def model(self, loss: str) -> Path:
        """Return the folder of a loss's chosen model, which :func:`holdout.load` reads."""
        return self.path / "models" / loss

    def remove_drafts(self) -> None:
        """Remove the partial files of killed drivers and commands; trials remove those of their checkpoints."""
        below = (path for name in ("test", "models") for path in (self.path / name).rglob("*") if path.is_dir())
        for folder in (self.path, *below):
            remove_dead_drafts(folder)

    @property
    def _lock(self) -> filelock.FileLock:
        return filelock.FileLock(self.path / ".driver.lock", timeout=0)

    @property
    def lock_files(self) -> tuple[Path, ...]:
        """The files by which a process holds the search."""
        return Path(self._lock.lock_file), self._holder

    def driver(self) -> str | None:
        """Return a description of the process that runs the search; None without one, and in a read-only folder."""
        try:
            with self._lock:
                return None
        except filelock.Timeout:
            with suppress(FileNotFoundError):  # just started, or just ended
                return self._holder.read_text("utf-8", "replace").strip()
            return "another process"
        except OSError:  # nothing can run a search that cannot be written
            if os.access(self.path, os.W_OK):
                raise
            return None

    def raise_if_moved(self) -> None:
        """Raise :class:`Failure` if the folder that this process runs is no longer there."""
        if not self._holder.exists():
            raise Failure(
                f"The folder of the search {self.name} was moved or removed while it ran. Put it back as {self.path}, "
                "in place of what was written there since, and run the same command again to resume."
            )

    def was_killed(self) -> bool:
        """Return True if the last process that ran the search was killed, or one runs it now."""
        return self._holder.exists()

    @contextmanager
    def only_driver(self) -> Iterator[None]:
        """Hold an exclusive lock on the search, or raise; its folder is removed again if it stays empty meanwhile."""
        try:
            with folder_if_needed(self.path), self._lock as lock:
                try:
                    self._holder.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", "utf-8")
                    yield
                finally:
                    self._holder.unlink(missing_ok=True)
                    if [*self.path.glob("*")] == [lock_file := Path(lock.lock_file)]:
                        lock_file.unlink()  # while locked: a waiting process notices and creates it again
        except filelock.Timeout:
            raise InvalidInput(
                f"The search {self.name} is being run by {self.driver()}; wait for it, or end it and repeat the "
                "command."
            ) from None


@contextmanager
def folder_if_needed(path: Path) -> Iterator[None]:
    """Create the folder ``path``; on exit, remove the created folders that are empty."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in made:
            with suppress(OSError):  # not empty
                folder.rmdir()


def find_runs(runs: Path) -> list[RunFolder]:
    """Return all searches in the folder ``runs``, by name."""
    return [RunFolder(runs, path.parent.name) for path in sorted(runs.glob("*/search.yaml"))]


def missing(what: str, name: str, runs: Path, there: Sequence[str], start: str = "") -> InvalidInput:
    """Return the error for a search or campaign that is not ``there``."""
    return InvalidInput(
        f"There is no {what} {name!r} in {runs.absolute()}{suggestion(name, there)}; it has: "
        f"{', '.join(there) or 'none yet'}.{start}"
    )


def trials_in(storage: str, search: str) -> str:
    """Return the folder or URL of the trials of ``search`` in a ``storage`` of checkpoints."""
    return f"{storage.rstrip('/')}/{search}/trials"


@dataclass(frozen=True)
class CampaignFolder(RunFolder):
    """The files of the campaign ``name`` below ``runs``, whose searches have folders beside it."""

    config = File("campaign.yaml")
    result = File("campaign.json")

    def begin(self, config: "CampaignConfig") -> None:
        """Write the campaign file, which may have another table or more labels when a campaign is resumed."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.config, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
        remember(self.path, addresses_in(self.path, {CAMPAIGN_RECIPE: config.recipe}, [CAMPAIGN_RECIPE]))

    def end(self, result: Mapping[str, Any]) -> bool:
        """Write the result as JSON; return True if it changed."""
        before = self.result.read_bytes() if self.result.exists() else None
        write_json(self.result, result)
        return self.result.read_bytes() != before

    def searches(self) -> list[str]:
        """Return the names of the stored campaign's searches; none before it begins."""
        return self.stored().search_names if self.is_campaign else []

    def stored(self) -> "CampaignConfig":
        """Return the stored campaign file; raise as :func:`read_yaml`."""
        from search.records.campaign import read_config  # imports pydantic

        return read_config(read_yaml(self.config))


def mlflow_page(folders: Sequence[RunFolder]) -> str | None:
    """Return the address of the page that compares these searches in MLflow; None if there is no such page."""
    found = []
    for folder in folders:
        with suppress(OSError, InvalidInput, *DAMAGED):
            content = read_json(folder.experiment)
            found.append((content["uri"], str(int(content["experiment"]))))
    uris, experiments = {uri for uri, _ in found}, list(dict.fromkeys(experiment for _, experiment in found))
    if len(found) < len(folders) or len(uris) > 1:
        return None
    return results_page(uris.pop(), experiments)


def find_campaigns(runs: Path) -> list[CampaignFolder]:
    """Return all campaigns in the folder ``runs``, by name."""
    return [CampaignFolder(runs, path.parent.name) for path in sorted(runs.glob("*/campaign.yaml"))]


def campaign_of(runs: Path, name: str) -> CampaignFolder | None:
    """Return the campaign that the search ``name`` belongs to, if any."""
    for campaign in find_campaigns(runs):
        if name.startswith(f"{campaign.name}-") and name in campaign.searches():
            return campaign
    return None


def refuse_member(runs: Path, name: str) -> None:
    """Raise :class:`InvalidInput` if the search ``name`` belongs to a campaign, whose searches are tested together."""
    if campaign := campaign_of(runs, name):
        raise InvalidInput(
            f"{name} is a search of the campaign {campaign.name}, whose searches are chosen and tested together; "
            "`holdout run` with its file resumes all of them."
        )

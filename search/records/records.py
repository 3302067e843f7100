"""The records of a search: what its folder and its studies hold, read when it is asked for."""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from search.config.names import is_plain_name
from search.config.yaml_file import read_yaml
from search.records.runs import RunFolder, find_runs, missing, trials_in
from search.stages import Stage, short_study_name, study_name
from search.study import JournalReader, StudyCounts
from search.trials import Tally
from search.trust import ADDRESSES, CHECKPOINTS, addresses_in, check_addresses, check_trusted, own_code, started
from trainables.common.errors import InvalidInput, suggestion
from trainables.common.files import read_json, reading

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search.config.search_config import SearchConfig
    from search.records.ledger import Ledger, Opening
    from search.records.plan import Plan
    from search.records.score_files import Baselines, ScoredOpening
    from search.records.selection import Selection
    from search.study import StudyStorage
    from trainables.data.split import ClassSplit

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Records:
    """The records of the search in ``folder``; its images and user-defined losses need not exist on this machine.

    A file is read when it is asked for, and again only after it has changed. ``given`` replaces the stored plan.
    """

    folder: RunFolder
    given: "Plan | None" = None
    _known: dict[Any, tuple[Any, Any]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.folder.name

    def read(self, path: Path, load: Callable[[Path], T]) -> T:
        """Return what ``load`` reads from ``path``, a file of the search; it is called again if the file changed."""
        return self._kept((path, load), _stamp(path), lambda: load(path))

    def once(self, function: Callable[[Self], T]) -> T:
        """Return ``function`` of these records, computed again only if one of their files has changed."""
        folder = self.folder
        files = (folder.journal, folder.baselines, folder.selection, folder.test, folder.summary, folder.openings)
        return self._kept(function, [*map(_stamp, files)], lambda: function(self))

    def _kept(self, key: object, stamp: object, compute: Callable[[], T]) -> T:
        if key not in self._known or self._known[key][0] != stamp:
            self._known[key] = stamp, compute()
        found: T = self._known[key][1]
        return found

    # The search file and the plan.

    @property
    def content(self) -> Mapping[str, Any]:
        """The stored search file, with all defaults."""
        return self.read(self.folder.config, self._content)

    def _content(self, path: Path) -> Mapping[str, Any]:
        refuse_odd_files(self.folder)
        content: Mapping[str, Any] = read_yaml(path)
        with reading(path, f"restore it from a copy, or run the file of {self.name} in another folder"):
            _ = content["losses"][0], content["checkpoints"]["storage_path"]
        addresses_in(self.folder.path, content)  # raises unless they are text
        self.refuse_renamed(content.get("name"))
        return content

    @property
    def settings(self) -> dict[str, Any]:
        """The stored search file by keys such as ``training.lr`` and ``trainable.``."""
        sections = {name: entry if isinstance(entry, dict) else {"": entry} for name, entry in self.content.items()}
        return {f"{section}.{name}": value for section, entry in sections.items() for name, value in entry.items()}

    def refuse_renamed(self, name: object) -> None:
        """Raise :class:`InvalidInput` if ``name``, which a record has, is not that of the folder."""
        if name != self.name:
            raise InvalidInput(
                f"{self.folder.path} holds the records of a search called {str(name)[:100]!r}, which are found by that "
                "name; rename the folder back."
            )

    @property
    def losses(self) -> tuple[str, ...]:
        if self.given:
            return self.given.config.loss_names
        return tuple(entry if isinstance(entry, str) else entry["name"] for entry in self.content["losses"])

    @property
    def split(self) -> "ClassSplit":
        """The stored class split; raises if the file is missing, damaged or was edited."""
        return self.read(self.folder.split, _split)

    @property
    def plan(self) -> "Plan":
        """The plan of the search.

        Raises:
            InvalidInput: the search has no studies yet, its file cannot be read, or it names code that is not allowed.
        """
        return self.given or self.read(self.folder.config, self._plan)

    def _plan(self, path: Path) -> "Plan":
        from search.config.search_config import parse_config  # imports pydantic
        from search.config.validation import Findings
        from search.records.plan import Plan, check_spaces

        if not self.folder.journal.exists():
            raise InvalidInput(f"{self.name} has no studies yet; wait until its first trial begins.")
        check_trusted(self.folder.path, own_code(self.content))
        config, found = parse_config(dict(self.content)), Findings[Any]()
        spaces = check_spaces(found, config, accepted=True)
        found.raise_if_any()
        return Plan(config=config, folder=self.folder, split=self.split, spaces=spaces)

    @property
    def config(self) -> "SearchConfig":
        return self.plan.config

    # The studies.

    @cached_property
    def studies(self) -> "StudyStorage":
        """Its studies, read again as they grow."""
        from search.study import read_studies  # imports Optuna

        return read_studies(self.folder.journal)

    @cached_property
    def _journal(self) -> tuple[JournalReader, StudyCounts]:
        return JournalReader(self.folder.journal), StudyCounts()

    @property
    def counts(self) -> StudyCounts:
        """The counts of its studies as they are stored now; Optuna is not imported."""
        reader, counts = self._journal
        with reading(reader.path):
            for log in reader.read():
                counts.apply(log)
        return counts

    def trials(self, loss: str, stage: Stage = Stage.SEARCH) -> "list[FrozenTrial]":
        """Return the trials of a loss's study in a stage; none if it has not begun."""
        return self.studies.trials_of(study_name(self.name, loss, stage))

    def tally(self, loss: str, stage: Stage) -> Tally:
        """Return the number of trials of a loss's study in a stage, by state."""
        counts = self.counts
        with reading(self.folder.journal):
            return counts.tally(study_name(self.name, loss, stage))

    def attributes(self, loss: str, stage: Stage = Stage.SEARCH) -> dict[str, Any]:
        """Return the user attributes of a loss's study in a stage."""
        return self.counts.attributes.get(study_name(self.name, loss, stage), {})

    @property
    def sessions(self) -> list[float]:
        """The start times of all drivers of this search."""
        return list(self.attributes(self.losses[0]).get("sessions", []))

    @property
    def slots(self) -> int:
        """The number of trials that the last driver ran at once; 0 before the first."""
        return int(self.attributes(self.losses[0]).get("slots", 0))

    def study_of(self, study: str) -> tuple[str, Stage]:
        """Return the loss and the stage of the study ``study``, such as ``mpa@confirm``; raise if there is none."""
        known = {short_study_name(loss, stage): (loss, stage) for loss in self.losses for stage in Stage}
        if study not in known:
            raise InvalidInput(
                f"{self.name} has no loss {study!r}{suggestion(study, known)}; it has {', '.join(self.losses)}, and "
                f"their later trainings as in {self.losses[0]}@confirm and {self.losses[0]}@final."
            )
        return known[study]

    def trials_of(self, study: str) -> "list[FrozenTrial]":
        """Return the trials of the study ``study``; raise as :meth:`study_of`."""
        return self.trials(*self.study_of(study))

    def trial_of(self, study: str, number: int) -> "FrozenTrial":
        """Return trial ``number`` of the study ``study``; raise if the search has no such loss, stage or trial."""
        trials = self.trials_of(study)
        if not 0 <= number < len(trials):
            numbers = f"trials 0 to {len(trials) - 1}" if trials else "no trial yet"
            raise InvalidInput(f"{self.name}/{study} has no trial {number}; it has {numbers}.")
        return trials[number]

    def trial_directory(self, study: str, number: int) -> str:
        """Return the place of a trial's checkpoints and logs; raise if the user did not allow to contact it."""
        address = self.content["checkpoints"]["storage_path"]
        check_addresses(self.folder.path, self.content, [CHECKPOINTS])
        shared = address or str(self.folder.runs.resolve())
        return f"{trials_in(shared, self.name)}/{study}/{number:04d}"

    # The choice and the test.

    @property
    def baselines(self) -> "Baselines | None":
        """The scores of the networks without training; None if nothing was pretrained."""
        from search.records.score_files import Baselines

        return self.read(self.folder.baselines, Baselines.load)

    @property
    def selection(self) -> "Selection | None":
        """The frozen selection; None before the choice."""
        return self.frozen_selection if self.folder.selection.exists() else None

    @property
    def frozen_selection(self) -> "Selection":
        """The frozen selection; raises before the choice, and if the file was changed."""
        from search.records.selection import Selection

        return self.read(self.folder.selection, Selection.load)

    @property
    def openings(self) -> "tuple[ScoredOpening, ...]":
        """The scored openings of its test classes, in order; none while they are sealed."""
        from search.records.score_files import scored_openings

        return self.read(self.folder.test, scored_openings)

    @cached_property
    def ledger(self) -> "Ledger":
        from search.records.ledger import Ledger

        return Ledger(self.folder.openings)

    @property
    def opening(self) -> "Opening | None":
        """The line of the ledger on the opening whose scores are shown; None while sealed, and if it was lost."""
        first = next((scored.id for scored in self.openings), None)
        return next((entry for entry in self.ledger.openings() if entry.id == first), None) if first else None

    @property
    def image_set(self) -> str:
        """The digest of its test images; while the test is sealed, that of the class names."""
        opening = self.opening
        return opening.images.digest if opening and opening.images else self.split.test_digest

    @property
    def openings_begun(self) -> list[str]:
        """The openings of the test classes that the journal or ``test/`` has."""
        noted = [name for of_study in self.counts.attributes.values() for name in of_study.get("openings", ())]
        return [*noted, *(path.name for path in (self.folder.path / "test").glob("*") if path.is_dir())]

    def lost_opening(self, *, scored: bool = True) -> str | None:
        """Return a phrase on an opening in the journal or ``test/`` that ``test.json`` lacks; None without one.

        One that the ledger has without scores is resumed; without ``scored``, none of the ledger is lost.
        """
        if not (begun := self.openings_begun):
            return None
        known = {entry.id for entry in self.openings}
        for entry in self.ledger.openings():
            if not (scored and entry.selections.get(self.name) in entry.scores):
                known.add(entry.id)
        lost = next((name for name in begun if name not in known), None)
        return lost and f"test.json openings lack {lost:.12}; restore it and the ledger from a copy"

    @property
    def trained_on_opened(self) -> str | None:
        """The warning that the search trains on images of an opened test set; None without such images."""
        path = self.folder.trained_on_opened
        if not path.exists():
            return None
        with reading(path):
            warning = read_json(path)["warning"]
            return None if warning is None else str(warning)

    # How far it is.

    @property
    def is_run_elsewhere(self) -> bool:
        """True if another process runs the search now; a command that has made a plan holds it, or nobody does."""
        return not self.given and self.folder.was_killed() and self.folder.driver() is not None

    def is_done(self, stage: Stage) -> bool:
        if stage is Stage.SELECT:
            return self.folder.selection.exists()
        if stage is Stage.TEST:
            return self.folder.test.exists() or self.stays_sealed is not None
        return all(self.plan.budget(loss).done(self.trials(loss)) for loss in self.config.loss_names)

    @property
    def is_tested(self) -> bool:
        """True if the trainings for the test have begun, so that the choice is final."""
        return self.folder.test.exists() or any(self.tally(loss, Stage.TEST).trials for loss in self.losses)

    @property
    def stays_sealed(self) -> str | None:
        """The reason for which the test of a search that has chosen stays sealed; None if it does not."""
        if self.folder.test.exists() or (selection := self.selection) is None:
            return None
        when = self.given.config.final.test if self.given else self.content.get("final", {}).get("test")
        if when == "if_better" and selection.recommended.number is None:
            return "No loss is better than the network without training, so the test stays sealed (final.test)."
        return None


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes with every change of the file at ``path``; None if there is none."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _split(path: Path) -> "ClassSplit":
    from trainables.data.split import ClassSplit

    if not path.is_file():
        raise InvalidInput(f"{path} is missing; restore it from a copy, or run the search's file again.")
    with reading(path):
        return ClassSplit.from_json(read_json(path))


def stored_search(runs: Path, name: str) -> Records:
    """Return the search ``name`` in ``runs``; raise if it does not exist, or has records that are no files."""
    folder = RunFolder(runs, name)
    if not is_plain_name(name) or not folder.config.is_file():
        raise missing("search", name, runs, [run.name for run in find_runs(runs)], " `holdout run` starts one.")
    refuse_odd_files(folder)
    return Records(folder)


SUFFIXES = (".json", ".yaml", ".npz", ".journal", ".safetensors")
"""Suffixes of files, which no folder has."""


def refuse_odd_files(folder: RunFolder) -> None:
    """Raise :class:`InvalidInput` if a record of somebody else's search is no file but a link, pipe, device or folder.

    A link may lead to any file, and a pipe never ends. The folder of the trainings may be a link to another disk.
    """
    if started(folder.path) is not None:
        return
    for place, folders, files in os.walk(folder.path):
        if Path(place) == folder.path and "trials" in folders:
            folders.remove("trials")
        for path in (Path(place, name) for name in (*folders, *files)):
            with suppress(FileNotFoundError):  # a draft
                mode = path.lstat().st_mode
                if not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and path.suffix not in SUFFIXES)):
                    what = "a link, which is not followed" if stat.S_ISLNK(mode) else "not a regular file"
                    raise InvalidInput(f"{path} is {what}; put the file itself there.")


def trusted_config(folder: RunFolder, addresses: Collection[str] = ADDRESSES) -> "SearchConfig":
    """Return the stored search file as a configuration, which imports the user-defined code that it names.

    Raises:
        InvalidInput: it is damaged; or it names code, or an address at the keys ``addresses``, that is not trusted.
    """
    from search.config.search_config import parse_stored  # imports pydantic

    content = read_yaml(folder.config)
    check_trusted(folder.path, addresses_in(folder.path, content, addresses) | own_code(content))
    return parse_stored(content, folder.config, folder.images)

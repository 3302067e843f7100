"""A stored search, opened read-only."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.plan.runs import RunFolder, existing_run, refuse_odd_files, refuse_renamed, stored_config, trials_in
from search.stages import Stage, short_study_name, study_name
from search.study import JournalReader, StudyCounts
from search.tables import PRUNERS
from search.trials import Tally, record_keys
from search.trust import CHECKPOINTS, addresses_in, check_addresses
from spaces.space import Value
from trainables.errors import InvalidInput, printable, suggestion
from trainables.files import read_json, reading
from trainables.metrics.table import metric_name
from trainables.secrets import without_password

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search.study import Pruner, StudyStorage


@dataclass(frozen=True)
class StoredSearch:
    """The search in ``folder``, read-only; its images and user-defined losses need not exist on this machine."""

    folder: RunFolder

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The stored search file, with all defaults."""
        refuse_odd_files(self.folder)
        content: Mapping[str, Any] = stored_config(self.folder)
        with reading(self.folder.config, f"restore it from a copy, or run the file of {self.name} in another folder"):
            _ = content["losses"][0], content["checkpoints"]["storage_path"]
        addresses_in(self.folder.path, content)  # raises unless they are text
        refuse_renamed(self.folder, content.get("name"))
        return content

    @property
    def losses(self) -> tuple[str, ...]:
        return tuple(entry if isinstance(entry, str) else entry["name"] for entry in self.config["losses"])

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

    @property
    def openings_begun(self) -> list[str]:
        """The openings of the test classes that the journal or ``test/`` has."""
        noted = [name for of_study in self.counts.attributes.values() for name in of_study.get("openings", ())]
        return [*noted, *(path.name for path in (self.folder.path / "test").glob("*") if path.is_dir())]

    def pruner(self, steps: int) -> "Pruner":
        """Return the pruner of its search trials, which train ``steps`` epochs."""
        return PRUNERS[self.config["search"]["pruner"]](steps=steps)

    def trials(self, loss: str, stage: Stage = Stage.SEARCH) -> "list[FrozenTrial]":
        """Return the trials of a loss's study in a stage; none if it has not begun."""
        return self.studies.trials_of(study_name(self.name, loss, stage))

    def tally(self, loss: str, stage: Stage) -> Tally:
        """Return the number of trials of a loss's study in a stage, by state."""
        return self.counts.tallies.get(study_name(self.name, loss, stage)) or Tally()

    def attributes(self, loss: str, stage: Stage = Stage.SEARCH) -> dict[str, Any]:
        """Return the user attributes of a loss's study in a stage."""
        return self.counts.attributes.get(study_name(self.name, loss, stage), {})

    def trial_directory(self, study: str, number: int) -> str:
        """Return the place of a trial's checkpoints and logs; raise if the user did not allow to contact it."""
        address = self.config["checkpoints"]["storage_path"]
        check_addresses(self.folder.path, self.config, [CHECKPOINTS])
        shared = address or str(self.folder.runs.resolve())
        return f"{trials_in(shared, self.name)}/{study}/{number:04d}"

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


def stored_search(runs: Path, name: str) -> StoredSearch:
    """Return the search ``name`` in the folder ``runs``; raise as :func:`existing_run`."""
    return StoredSearch(existing_run(runs, name))


# Trials as rows of a table.


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial.

    ``state`` is Optuna's name, ``value`` the trial's value (its last one if it was pruned), ``epochs`` the number of
    reported epochs, ``replicate_of`` the first trial with the same params, and ``outcome`` the reason for its end.
    """

    number: int
    state: str
    value: float | None
    params: Mapping[str, Value]
    seed: int | None
    epochs: int
    replicate_of: int | None
    outcome: str | None


def trial_row(trial: "FrozenTrial") -> TrialRow:
    attributes = trial.user_attrs
    reported = trial.intermediate_values
    return TrialRow(
        number=trial.number,
        state=trial.state.name,
        value=trial.value if trial.value is not None else reported[max(reported)] if reported else None,
        params=trial.params,
        seed=attributes.get("seed"),
        epochs=len(record_keys(trial)),
        replicate_of=attributes.get("replicate_of"),
        outcome=attributes.get("outcome"),
    )


def param_names(rows: Sequence[TrialRow]) -> list[str]:
    """Return the names of all params in the rows, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row.params))


def trial_rows(trials: "Sequence[FrozenTrial]") -> list[TrialRow]:
    """Return the rows of ``trials``, without waiting ones."""
    return [trial_row(trial) for trial in trials if trial.state.name != "WAITING"]


def trials_csv(tables: Mapping[str, Sequence[TrialRow]]) -> str:
    """Return the rows of all studies as CSV, with one column per param."""
    names = param_names([row for rows in tables.values() for row in rows])
    text = io.StringIO()
    columns = [name for name in TrialRow.__dataclass_fields__ if name != "params"]
    writer = csv.DictWriter(text, ("study", *columns, *names), lineterminator="\n")
    writer.writeheader()
    for study, rows in tables.items():
        for row in rows:
            facts = {key: value for key, value in asdict(row).items() if key != "params"}
            cells = {"study": study, **facts, **row.params}
            writer.writerow({key: printable(cell) if isinstance(cell, str) else cell for key, cell in cells.items()})
    return text.getvalue()


# The test of a search.


def stays_sealed(folder: RunFolder, when: str) -> str | None:
    """Return why the test of a search that has chosen, with the ``final.test`` ``when``, stays sealed, or None."""
    if folder.test.exists() or not folder.selection.exists():
        return None
    with reading(folder.selection):
        content = read_json(folder.selection)
        if when == "if_better" and content["recommended"]["number"] is None:
            return "No loss is better than the network without training, so the test stays sealed (final.test)."
        earlier = RunFolder(folder.runs, before) if (before := folder.predecessor_name()) else None
        if earlier and earlier.test.exists() and _chosen(read_json(earlier.selection)) == _chosen(content):
            return f"The choice is that of {before}, whose test stands; {folder.name} opens none."
    return None


def _chosen(selection: Mapping[str, Any]) -> dict[str, Any]:
    return {loss: entry["params"] for loss, entry in selection["chosen"].items()}


# The progress of a search.

FINISHED = {Stage.SEARCH: "searched", Stage.SELECT: "selected", Stage.TEST: "tested"}
"""The state after each stage."""


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """One study's trials by state.

    ``running`` counts trials that a driver trains now, ``interrupted`` those that a killed or stopped driver left.
    ``planned`` is their maximum number, ``epoch_budget`` their total epochs (None: unlimited), ``ended_early`` the
    reason if there are fewer trials than planned, ``best`` the highest value of a complete trial.
    """

    study: str
    stage: Stage
    running: int
    interrupted: int
    complete: int
    pruned: int
    failed: int
    planned: int
    epochs: int
    epoch_budget: int | None
    ended_early: str | None
    best: float | None


@dataclass(frozen=True, kw_only=True)
class SearchStatus:
    """A search's studies; ``driver`` describes the process that runs it, ``problem`` says what cannot be read.

    ``finished`` is True if nothing is left of the stages in its file, and for a search that cannot be read.
    ``baselines`` are the objectives of the networks without training on the validation classes.
    """

    name: str
    state: str
    finished: bool
    driver: str | None
    studies: tuple[StudyStatus, ...]
    problem: str | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)


def status_of(search: StoredSearch) -> SearchStatus:
    """Return the trials of every study of a search, by state, and the search's last stage.

    A search that cannot be read gets a ``problem`` instead of an error, so that the folder's others can be listed.
    """
    try:
        driver = search.folder.driver()
        studies = tuple(
            _study_status(search, loss, stage, tally, is_driven=driver is not None)
            for stage in Stage
            for loss in search.losses
            if (tally := search.tally(loss, stage)).trials
        )
        baselines = _baselines(search)
        state = _state(search, studies)
        ends = list(FINISHED.values())
        finished = state in ends[ends.index(FINISHED[Stage(search.config["stages"][-1])]) :]  # `select` may go further
    except InvalidInput as error:
        return _unreadable(search, error.sentences[0])
    except Exception as error:  # files of another version, or damaged ones, may raise anything
        reason = without_password(f"{type(error).__name__}: {error}").splitlines()[0]
        return _unreadable(search, f"this version of Holdout cannot read it ({reason})")
    return SearchStatus(
        name=search.name, state=state, finished=finished, driver=driver, studies=studies, baselines=baselines
    )


def _unreadable(search: StoredSearch, problem: str) -> SearchStatus:
    return SearchStatus(name=search.name, state="unreadable", finished=True, driver=None, studies=(), problem=problem)


def _baselines(search: StoredSearch) -> dict[str, float]:
    if not search.folder.baselines.exists():
        return {}
    with reading(search.folder.baselines):
        objective, stored = search.config["search"]["objective"], read_json(search.folder.baselines)
        return {name: float(values[metric_name(objective)]) for name, values in stored["validation"].items()}


def _study_status(search: StoredSearch, loss: str, stage: Stage, tally: Tally, *, is_driven: bool) -> StudyStatus:
    attributes = search.attributes(loss, stage)
    ended_early = attributes.get("ended_early")
    return StudyStatus(
        study=short_study_name(loss, stage),
        stage=stage,
        running=tally.running if is_driven else 0,
        interrupted=0 if is_driven else tally.running,
        complete=tally.complete,
        pruned=tally.pruned,
        failed=tally.failed,
        planned=tally.trials if ended_early else attributes.get("planned_trials", tally.trials),
        epochs=tally.epochs,
        epoch_budget=attributes.get("planned_epochs"),
        ended_early=ended_early,
        best=tally.best,
    )


def _state(search: StoredSearch, studies: tuple[StudyStatus, ...]) -> str:
    stages = {row.stage for row in studies}
    if search.folder.test.exists():
        return "tested"
    if search.openings_begun:
        return "opened without scores"
    if Stage.TEST in stages:
        return "training for the test"
    if search.folder.selection.exists():
        return "selected"
    if Stage.SELECT in stages:
        return "confirming"
    left = [row.stage for row in studies if row.complete + row.pruned + row.failed < row.planned]
    if not left and sum(row.stage is Stage.SEARCH for row in studies) == len(search.losses):
        return "searched"
    return "searching"

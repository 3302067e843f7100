"""How far a search is, read from its storage alone."""

from dataclasses import dataclass

from optuna.trial import TrialState

from search.plan.stored import StoredSearch
from search.study.names import Stage, short_study_name
from search.study.tally import Tally


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """One study's trials by state.

    ``planned`` is how many there will be at most, ``epoch_budget`` how many epochs they may train together (None:
    as many as they need), ``ended_early`` why there are fewer, ``best`` the highest value of a complete trial.
    """

    study: str
    stage: Stage
    running: int
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
    """A search's studies; ``driver`` says which process runs it (None: nobody), ``problem`` what cannot be read."""

    name: str
    state: str
    driver: str | None
    studies: tuple[StudyStatus, ...]
    problem: str | None = None


def status_of(search: StoredSearch) -> SearchStatus:
    """The trials of every study of a search, by state, and what the search did last.

    What this version cannot read is a ``problem`` and no error: the other searches of a folder are still listed.
    """
    try:
        studies = tuple(
            _study_status(search, loss, stage, tally)
            for stage in Stage
            for loss in search.losses
            if (tally := search.tally(loss, stage)).trials
        )
    except Exception as error:  # an older version's, another one's, or a damaged file's: anything may be in it
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        problem = f"this version of Holdout cannot read it ({reason})"
        return SearchStatus(name=search.name, state="unreadable", driver=None, studies=(), problem=problem)
    return SearchStatus(name=search.name, state=_state(search, studies), driver=search.folder.driver(), studies=studies)


def _study_status(search: StoredSearch, loss: str, stage: Stage, tally: Tally) -> StudyStatus:
    attributes = search.attributes(loss, stage)
    ended_early = attributes.get("ended_early")
    return StudyStatus(
        study=short_study_name(loss, stage),
        stage=stage,
        running=tally.running,
        complete=tally.states[TrialState.COMPLETE],
        pruned=tally.states[TrialState.PRUNED],
        failed=tally.states[TrialState.FAIL],
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
    if Stage.TEST in stages:
        return "training for the test"
    if search.folder.selection.exists():
        return "selected"
    if Stage.SELECT in stages:
        return "confirming"
    if Stage.AUDIT in stages:
        return "auditing the pruning"
    return "measuring the noise" if stages == {Stage.NOISE} else "searching"

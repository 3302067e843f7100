"""Running a search from its file to its outcome."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.driver.progress_view import phase
from search.driver.stages import Outcome
from search.plan.make_plan import read_plan, reopened
from search.plan.plan import Plan
from search.plan.runs import campaign_of, refuse_member
from search.stages import Stage
from search.study import RunningTrial, TrialListener
from trainables.mistakes import Mistakes
from trainables.spec import EpochRecord

# What a search came to when its stages were carried out.


# A search from its file to its outcome: what ``holdout run`` and the library do, and ``holdout audit`` afterwards.

OnEpoch = Callable[[str, int, EpochRecord], None]
"""``on_epoch(study, number, record)``: trial ``number`` of ``study`` (``mpa``, ``mpa@confirm``) ended an epoch."""


class _EpochCallback(TrialListener):
    def __init__(self, on_epoch: OnEpoch) -> None:
        self._on_epoch = on_epoch

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Pass the epoch on."""
        self._on_epoch(running.study.name.partition("/")[2], running.number, record)


def run_search(
    content: Mapping[str, Any],
    runs: Path,
    console: Console,
    *,
    started: float,
    on_epoch: OnEpoch | None = None,
) -> "Outcome":
    """Start the search of the file ``content``, go on with it or extend it below ``runs``.

    Args:
        content: the keys and values of a search file.
        runs: the runs folder.
        console: where progress is shown.
        started: when the command began, in seconds since 1970.
        on_epoch: called after every epoch of every trial.

    Raises:
        Mistakes: all that is wrong with the file; nothing is created then.
        Failure: it could not be done.
    """
    with phase(console, "Checking the search …"):
        plan = read_plan(content, runs)
        refuse_member(runs, plan.config.name)
        for notice in plan.notices:
            console.print(notice, highlight=False, markup=False, soft_wrap=True)
        from search.driver.pipeline import run_stages  # a mistake is said before half of the program is imported

    listeners = [_EpochCallback(on_epoch)] if on_epoch else []
    (outcome,) = run_stages(
        [plan], console, plan.config.stages, started=started, opener=plan.config.name, listeners=listeners
    )
    return outcome


def audit_search(name: str, runs: Path, trials: int, console: Console, *, started: float) -> "Outcome":
    """Train pruned trials of the search ``name`` to their end, as ``search.audit`` does; the choice stays as it is.

    Args:
        name: a search whose trials have ended; what comes after them is left as it is.
        runs: the runs folder.
        trials: how many of each loss. An audit of more, which began before, is gone on with.
        console: where progress is shown.
        started: when the command began, in seconds since 1970.

    Raises:
        Mistakes: there is no such search, it is not searched to its end, or nothing was pruned.
        Failure: it could not be done.
    """
    if campaign := campaign_of(runs, name):
        raise Mistakes(
            f"{name} is a search of the campaign {campaign.name}; `holdout campaign` with its file and "
            f"`--set base.search.audit={trials}` audits all of its searches."
        )
    plan = reopened(runs, name)
    _refuse_without_prunings(plan)
    search = plan.config.search
    wanted = search.model_copy(update={"audit": max(trials, search.audit)})
    plan = replace(plan, config=plan.config.model_copy(update={"search": wanted}))
    from search.driver.pipeline import run_stages

    (outcome,) = run_stages([plan], console, [Stage.SEARCH], started=started, opener=name)
    return outcome


def _refuse_without_prunings(plan: Plan) -> None:
    from search.plan.stored import StoredSearch  # imports sqlalchemy

    name = plan.config.name
    with closing(StoredSearch(plan.folder)) as stored:
        searched = {loss: stored.trials(loss) for loss in plan.config.loss_names}
    if not all(plan.budget(loss).done(trials) for loss, trials in searched.items()):
        raise Mistakes(f"The search {name} has trials left; `holdout run` its file first.")
    if not any(trial.state == TrialState.PRUNED for trials in searched.values() for trial in trials):
        raise Mistakes(
            f"No trial of {name} was pruned (search.pruner is {plan.config.search.pruner}), so there is nothing to "
            "audit; name a search with pruned trials."
        )

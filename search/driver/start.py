"""The entry points of ``holdout run``, ``holdout audit`` and the library: from a search's file to its outcome."""

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

OnEpoch = Callable[[str, int, EpochRecord], None]
"""``on_epoch(study, number, record)``: trial ``number`` of ``study`` (``mpa``, ``mpa@confirm``) finished an epoch."""


class _EpochCallback(TrialListener):
    def __init__(self, on_epoch: OnEpoch) -> None:
        self._on_epoch = on_epoch

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        self._on_epoch(running.study.name.partition("/")[2], running.number, record)


def run_search(
    content: Mapping[str, Any],
    runs: Path,
    console: Console,
    *,
    started: float,
    allow_failed: bool = False,
    on_epoch: OnEpoch | None = None,
) -> Outcome:
    """Start, resume or extend the search of the file ``content`` in the folder ``runs``.

    Args:
        content: the keys and values of a search file.
        runs: the runs folder.
        console: where progress is shown.
        started: when the command began, in seconds since 1970.
        allow_failed: continue without the losses that failed in every trial.
        on_epoch: called after every epoch of every trial.

    Raises:
        Mistakes: every mistake in the file; nothing is created.
        Failure: the search could not be run.
    """
    with phase(console, "Checking the search …"):
        plan = read_plan(content, runs)
        refuse_member(runs, plan.config.name)
        for notice in plan.notices:
            console.print(notice, highlight=False, markup=False, soft_wrap=True)
        from search.driver.pipeline import run_stages  # slow to import; report mistakes in the file first

    listeners = [_EpochCallback(on_epoch)] if on_epoch else []
    (outcome,) = run_stages(
        [plan],
        console,
        plan.config.stages,
        started=started,
        opener=plan.config.name,
        allow_failed=allow_failed,
        listeners=listeners,
    )
    return outcome


def audit_search(name: str, runs: Path, trials: int, console: Console, *, started: float) -> Outcome:
    """Retrain pruned trials of the search ``name`` without pruning, as ``search.audit`` does; keep its choice.

    Args:
        name: a search whose trials have all ended; its later stages stay unchanged.
        runs: the runs folder.
        trials: how many pruned trials per loss. If a larger audit was started before, that one is resumed.
        console: where progress is shown.
        started: when the command began, in seconds since 1970.

    Raises:
        Mistakes: there is no such search, it has trials left, or nothing was pruned.
        Failure: the audit could not be run.
    """
    if campaign := campaign_of(runs, name):
        raise Mistakes(
            f"{name} is a search of the campaign {campaign.name}; audit all of its searches with `holdout campaign`, "
            f"its file and `--set base.search.audit={trials}`."
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
    """Raise if the search of ``plan`` has trials left or no pruned trial."""
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

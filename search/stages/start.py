"""A search from its file to its outcome: what ``holdout run`` and the library do."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial
from rich.console import Console

from search.campaigns.folder import refuse_member
from search.plan.resume import read_plan
from search.stages.progress.phase import phase
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.training.epoch_record import EpochRecord

if TYPE_CHECKING:
    from search.stages.outcome import Outcome

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
        from search.stages.pipeline import run_stages  # a mistake is said before half of the program is imported

    listeners = [_EpochCallback(on_epoch)] if on_epoch else []
    (outcome,) = run_stages(
        [plan], console, plan.config.stages, started=started, opener=plan.config.name, listeners=listeners
    )
    return outcome

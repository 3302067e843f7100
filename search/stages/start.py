"""A search from its file to its outcome: what ``holdout run`` and the library do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from search.plan.resume import read_plan
from search.stages.outcome import Outcome
from search.stages.pipeline import run_stages
from search.study.trial_queue import TrialListener


def run_search(
    content: Mapping[str, Any],
    runs: Path,
    console: Console,
    *,
    started: float,
    listeners: Sequence[TrialListener] = (),
) -> Outcome:
    """Start the search of the file ``content``, go on with it or extend it below ``runs``.

    Args:
        content: the keys and values of a search file.
        runs: the runs folder.
        console: where progress is shown.
        started: when the command began, in seconds since 1970.
        listeners: what follows every trial.

    Raises:
        Mistakes: all that is wrong with the file; nothing is created then.
        Failure: it could not be done.
    """
    plan = read_plan(content, runs)
    for notice in plan.notices:
        console.print(notice, highlight=False, markup=False, soft_wrap=True)
    (outcome,) = run_stages(
        [plan], console, plan.config.stages, started=started, opener=plan.config.name, listeners=listeners
    )
    return outcome

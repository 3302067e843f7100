"""The entry points of ``holdout run`` and the library: from a search's file to its records."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from search.driver.progress_view import phase
from search.plan.make_plan import read_plan
from search.plan.records import Records
from search.plan.runs import refuse_member
from search.stages import Stage
from search.study import RunningTrial, TrialListener
from trainables.training.spec import EpochRecord

OnEpoch = Callable[[str, int, EpochRecord], None]
"""``on_epoch(study, number, record)``: trial ``number`` of ``study`` (``mpa``, ``mpa@confirm``) finished an epoch."""


class _EpochCallback(TrialListener):
    def __init__(self, on_epoch: OnEpoch) -> None:
        self._on_epoch = on_epoch

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._on_epoch(running.study.name.partition("/")[2], running.number, record)


def run_search(
    content: Mapping[str, Any],
    runs: Path,
    console: Console,
    *,
    started: float,
    allow_failed: bool = False,
    on_epoch: OnEpoch | None = None,
    opens: Callable[[str], bool] = lambda doubt: False,
) -> Records:
    """Start, resume or extend the search of the file ``content`` in the folder ``runs``.

    Args:
        started: when the command began, in seconds since 1970.
        allow_failed: continue without the losses that failed in every trial.
        on_epoch: called after every epoch of every trial.
        opens: asked before the test is opened if the choice may be due to chance, with a sentence on why; not asked if
            the file names its stages.

    Raises:
        InvalidInput: every mistake in the file; nothing is created.
        Failure: the search could not be run.
    """
    with phase(console, "Checking the search …"):
        plan = read_plan(content, runs)
        refuse_member(runs, plan.config.name)
        for notice in plan.notices:
            console.print(notice, highlight=False, markup=False, soft_wrap=True)
        from search.driver.pipeline import run_stages  # slow to import; report mistakes in the file first
        from search.driver.stages import Order

    order = Order(
        console=console,
        stages=plan.config.stages,
        started=started,
        opener=plan.config.name,
        allow_failed=allow_failed,
        listeners=[_EpochCallback(on_epoch)] if on_epoch else [],
    )
    if (doubt := plan.doubt) and Stage.TEST in order.stages and "stages" not in content:
        (search,) = run_stages(
            [plan], replace(order, stages=[stage for stage in order.stages if stage is not Stage.TEST])
        )
        if search.is_done(Stage.TEST):
            return search
        if not opens(doubt):
            sealed = f"{doubt} The test stays sealed; repeat the command with --yes to open it (in Python yes=True)."
            console.print(sealed, highlight=False, markup=False, soft_wrap=True)
            return search
        plan, order = search.plan, replace(order, started=time.time(), continues=True)  # with the digest of the images
    (search,) = run_stages([plan], order)
    return search

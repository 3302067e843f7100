"""The entry points of ``holdout run``, ``holdout enqueue`` and the library: from a search's file to its records."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from search.config.parts import range_text
from search.config.validation import plain
from search.driver.make_plan import read_plan, reopened, with_trials
from search.driver.progress_view import phase, say
from search.records.plan import Plan
from search.records.records import Records, stored_search
from search.records.runs import campaign_of, refuse_member
from search.stages import Stage
from search.study import STOPPED, RunningTrial, TrialListener
from spaces.space import Choice, Range, Value
from trainables.common.errors import InvalidInput, raise_if_any, suggestion
from trainables.common.ranges import is_number
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
        say(console, plan.notices, style=None)
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
        (search,) = run_stages([plan], replace(order, stages=[Stage.SEARCH, Stage.SELECT]))
        if search.is_done(Stage.TEST):
            return search
        if not opens(doubt):
            stays = "The test stays sealed; repeat the command with --yes to open it (in Python yes=True)."
            say(console, [f"{doubt} {stays}"], style=None)
            return search
        plan, order = search.plan, replace(order, started=time.time(), continues=True)  # with the digest of the images
    (search,) = run_stages([plan], order)
    return search


def enqueue(name: str, runs: Path, loss: str, proposals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Enqueue trials of ``loss`` in the stored search ``name``, which its next run trains before its own proposals.

    The sampler proposes hyperparameters that a proposal leaves out. The trials count in the budget: if
    ``search.trials`` has no room for them, it is raised, for every loss.

    Returns:
        ``search``, ``loss``, ``trials`` (the number and the parameters of each) and ``search_trials``.

    Raises:
        InvalidInput: all mistakes in the proposals; the search is being run, its configurations are chosen, it belongs
            to a campaign, or its sampler tries a fixed list or its epochs are used up. Nothing is enqueued.
    """
    from search.driver.stages import begin_studies  # slow to import; see run_search
    from search.records.writable import open_search

    _refuse_late(runs, name)
    plan = reopened(runs, name)
    if loss not in plan.spaces:
        raise InvalidInput(
            f"--loss is {loss}, which {name} does not search{suggestion(loss, plan.spaces)}; it has "
            f"{', '.join(plan.spaces)}."
        )
    wanted = _checked(plan, loss, proposals)
    with plan.folder.only_driver():
        _refuse_late(runs, name)  # another process may have chosen meanwhile
        with closing(open_search(plan)) as search:
            begin_studies(search)
            trials = search.trials(loss)
        enqueued = len(trials)
        trials_of_each = max(plan.config.search.trials, enqueued + len(wanted))
        plan = replace(plan, config=with_trials(plan.config, trials_of_each))
        if over := plan.budget(loss).availability(trials).over:
            fix = "run its file again first" if over == STOPPED else "begin another search with a larger budget"
            raise InvalidInput(f"{loss} takes no more trials in {name}: {over}; {fix}.")
        with closing(open_search(plan)) as search:
            for other in plan.config.loss_names:
                search.study(other, Stage.SEARCH)  # stores the planned number of trials
            search.study(loss, Stage.SEARCH).enqueue(
                (params, {"enqueued": enqueued + index}) for index, params in enumerate(wanted)
            )
    return {
        "search": name,
        "loss": loss,
        "trials": [{"number": enqueued + index, "params": params} for index, params in enumerate(wanted)],
        "search_trials": plan.config.search.trials,
    }


def _refuse_late(runs: Path, name: str) -> None:
    if campaign := campaign_of(runs, name):
        raise InvalidInput(
            f"{name} is a search of the campaign {campaign.name}, whose searches have equal budgets; name another one."
        )
    if stored_search(runs, name).folder.selection.exists():
        raise InvalidInput(
            f"The configurations of {name} are already chosen, so it takes no more trials; raise search.trials in its "
            "file and `holdout run` it with `--set 'stages=[search]'` if it is not tested, or begin another search."
        )


def _checked(plan: Plan, loss: str, proposals: Sequence[Mapping[str, Any]]) -> list[dict[str, Value]]:
    """Return the proposals with the types of the space; raise if a value is outside, or the list of trials is fixed."""
    mistakes: list[str] = []
    budget = plan.budget(loss)
    if budget.sampler is not None and budget.sampler.size is not None:
        mistakes.append(
            f"search.sampler is {plan.config.search.sampler}, which tries a fixed list of trials; enqueue trials in a "
            "search with another sampler, such as tpe."
        )
    wanted = [_typed(plan, loss, plain(proposal, ("--params",)), mistakes) for proposal in proposals]
    raise_if_any(list(dict.fromkeys(mistakes)))
    return wanted


def _typed(plan: Plan, loss: str, proposal: Mapping[str, Any], mistakes: list[str]) -> dict[str, Value]:
    """Return a proposal with the types of the space; add what is wrong with it to ``mistakes``."""
    typed, parameters = {}, plan.spaces[loss].parameters
    for name, value in proposal.items():
        if (parameter := parameters.get(name)) is None:
            hint, known = suggestion(name, parameters), ", ".join(parameters)
            mistakes.append(f"--params {name}: {loss} has no such hyperparameter in this search{hint}; it has {known}.")
            continue
        try:
            typed[name] = _of_range(parameter, value)
        except ValueError:
            inside = f"the search's space has {range_text(parameter)}"
            mistakes.append(f"--params {name}: it is {value!r}, and {inside}; give a value from there.")
            continue
        for other, values in parameter.when.items():
            if other in proposal and proposal[other] not in values:
                where = f"it exists only where {other} is {' or '.join(map(str, values))}"
                mistakes.append(f"--params {name}: {where}, and here that is {proposal[other]!r}; leave it out.")
    return typed


def _of_range(entry: Range, value: Any) -> Value:
    """Return ``value`` with the type that the range gives it; raise if it is not in there."""
    if isinstance(entry, Choice):
        is_bool = isinstance(value, bool)
        if same := [of for of in entry.choices if of == value and isinstance(of, bool) is is_bool]:
            return same[0]
    elif is_number(value) and math.isfinite(value):
        nearest: Any = entry.nearest(value)  # 0.3 for 0.30000000000000004, which Optuna proposes by steps of 0.1
        if math.isclose(nearest, value, rel_tol=1e-12):
            return type(entry.ends[0])(nearest)  # type: ignore[misc]
    raise ValueError

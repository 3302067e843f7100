"""Trials in words: what hovering over one says, and tables of many."""

import html
import textwrap
from collections.abc import Sequence

from optuna.trial import FrozenTrial

from search.pages.figures.search.searched import DEFAULT, SearchedLoss, last_step, value_of
from search.report.tables.formats import parameters
from search.report.tables.text_table import NOTHING, TextTable
from spaces.value import value_text

MOST_ROWS = 200


def hover(searched: SearchedLoss, trial: FrozenTrial) -> str:
    """A trial's number, value, hyperparameters and why it ended, as Plotly's markup."""
    value = f": {searched.objective} {value_of(trial):.4f}" if trial.intermediate_values else ""
    varying = {name: entry for name, entry in trial.params.items() if name in searched.axes}
    lines = [f"{title(searched, trial)}{value}", parameters(varying), why(trial, 160)]
    return "<br>".join(html.escape(part) for line in lines if line for part in textwrap.wrap(line, 70))


def title(searched: SearchedLoss, trial: FrozenTrial) -> str:
    """A trial's number, and whether it is the default's or the chosen one."""
    roles = {DEFAULT: "default", searched.chosen: searched.chosen_word}
    role = roles.get(trial.number)
    return f"trial {trial.number} ({role})" if role else f"trial {trial.number}"


def why(trial: FrozenTrial, width: int) -> str:
    """Why a trial ended; a long reason is cut."""
    return textwrap.shorten(str(trial.user_attrs.get("outcome", "not ended yet")), width, placeholder=" …")


def trials_table(searched: SearchedLoss, trials: Sequence[FrozenTrial], *, most: int = MOST_ROWS) -> TextTable:
    """The first ``most`` of ``trials`` with their values and hyperparameters."""
    names = list(searched.axes)
    left_out = len(trials) - most
    return TextTable(
        title="",
        header=("trial", searched.objective, f"{searched.pruner.unit}s", *names, "ended"),
        rows=tuple(
            (
                title(searched, trial),
                f"{value_of(trial):.4f}" if trial.intermediate_values else NOTHING,
                str(last_step(trial)) if trial.intermediate_values else "0",
                *(value_text(trial.params[name]) if name in trial.params else NOTHING for name in names),
                why(trial, 120),
            )
            for trial in trials[:most]
        ),
        labels=1,
        notes=() if left_out <= 0 else (f"{left_out:,} more trials are left out; `holdout trials` lists all",),
    )

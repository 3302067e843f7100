"""The search of one loss as figures read it, and trials in words."""

import html
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from search.plan.stored import StoredSearch, TrialRow, trial_row
from search.report.formats import parameters
from search.report.importances import Importances, Range, importances, position, value_at
from search.report.results import LossSummary, Summary
from search.report.text_table import NOTHING, TextTable
from search.stages import Stage
from search.trials import ByEpoch, ByFold, epochs_of
from spaces.space import Value, value_text
from trainables.metrics import metric_name
from trainables.spec import EpochRecord
from trainables.training.trial_log import read_log

# The search of one loss, as its figures look at it.

_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


_MARGIN = 0.04


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The hyperparameter ``name``, with the range that was searched."""

    name: str
    distribution: BaseDistribution

    @property
    def range(self) -> Range | None:
        """The range of numbers; None where it is a list of choices."""
        return self.distribution if isinstance(self.distribution, FloatDistribution | IntDistribution) else None

    @property
    def choices(self) -> tuple[Value, ...]:
        """The choices, numbers in their order; none of a range."""
        if not isinstance(self.distribution, CategoricalDistribution):
            return ()
        choices = self.distribution.choices
        are_numbers = all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in choices)
        return tuple(sorted(choices)) if are_numbers else choices  # type: ignore[type-var]

    @property
    def text(self) -> str:
        """The range or the choices in words."""
        if self.range is None:
            return ", ".join(map(value_text, self.choices))
        ends = f"[{value_text(self.range.low)}, {value_text(self.range.high)}]"
        return f"{ends}, log" if self.range.log else ends

    def place(self, value: Value) -> Any:
        """Where ``value`` is drawn: a number is itself, a choice its position in the list."""
        return self.choices.index(value) if self.range is None else value

    def share(self, value: Value) -> float:
        """Where ``value`` lies, from 0 at the low end of the range to 1 at its high end, in its own scale."""
        if self.range is None:
            return self.choices.index(value) / (len(self.choices) - 1)
        return position(self.range, value)  # type: ignore[arg-type]

    def value_at(self, share: float) -> float:
        """The number at a share of the range."""
        assert self.range is not None, "a choice has no neighbours"
        return value_at(self.range, share)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Shares of the range and the values there."""
        if self.range is None:
            return [(self.share(choice), value_text(choice)) for choice in self.choices]
        return [(share, value_text(float(self.value_at(share)))) for share in _TICKS]

    @property
    def layout(self) -> dict[str, Any]:
        """An axis of Plotly that shows the range and a little beyond; dotted lines belong at its :attr:`ends`."""
        title = {"text": html.escape(self.name)}
        if self.range is None:
            texts = [html.escape(value_text(choice)) for choice in self.choices]
            places = list(range(len(texts)))
            return {"title": title, "tickvals": places, "ticktext": texts, "range": [-0.5, len(texts) - 0.5]}
        return {"title": title, "type": "log" if self.range.log else "linear", "range": self._seen}

    @property
    def _seen(self) -> list[float]:
        """From where to where the axis goes; along a logarithm Plotly wants the exponents."""
        assert self.range is not None
        ends = [self.value_at(-_MARGIN), self.value_at(1 + _MARGIN)]
        return [math.log10(end) for end in ends] if self.range.log else ends

    @property
    def ends(self) -> tuple[float, ...]:
        """Both ends of a range of numbers."""
        return () if self.range is None else (self.range.low, self.range.high)


DEFAULT: Final = 0
"""The number of the trial that has the paper's default."""


@dataclass(frozen=True, kw_only=True)
class SearchedLoss:
    """The search of ``loss``, as figures read it.

    ``trials`` are those that began, ``confirmations`` those of its confirmed configurations. ``pruning`` is the
    pruner's plan in words. Trials were compared by halving after ``rungs``; ``milestones`` are the steps at which
    values are worth comparing.
    """

    loss: str
    objective: str
    summary: LossSummary
    steps: int
    unit: str
    pruning: str
    rungs: tuple[int, ...]
    milestones: tuple[int, ...]
    trials: tuple[FrozenTrial, ...]
    confirmations: tuple[FrozenTrial, ...]

    @property
    def name(self) -> str:
        """What its section is called in a report: letters, digits and hyphens."""
        plain = re.sub(r"[^A-Za-z0-9_]", lambda found: f"-{ord(found[0]):x}-", self.loss)
        return f"loss-{plain.replace('_', '-')}"

    @cached_property
    def records(self) -> Mapping[int, list[EpochRecord]]:
        """The epochs of each trial."""
        return {trial.number: epochs_of(trial) for trial in self.trials}

    @cached_property
    def axes(self) -> Mapping[str, Axis]:
        """The hyperparameters that vary, each with the range that its last trial was proposed from."""
        return {name: Axis(name=name, distribution=entry) for name, entry in self._ranges.items() if not entry.single()}

    @cached_property
    def constants(self) -> Mapping[str, Value]:
        """The hyperparameters that have one value alone."""
        values = {name: value for trial in self.trials for name, value in trial.params.items()}
        return {name: value for name, value in values.items() if self._ranges[name].single()}

    @cached_property
    def _ranges(self) -> Mapping[str, BaseDistribution]:
        return {name: entry for trial in self.trials for name, entry in trial.distributions.items()}

    @property
    def numeric(self) -> list[str]:
        """The hyperparameters that vary along a range of numbers."""
        return [name for name, axis in self.axes.items() if axis.range is not None]

    @cached_property
    def valued(self) -> list[FrozenTrial]:
        """The trials that have a value, the best first: what is complete, then what got furthest, each by value."""
        valued = [trial for trial in self.trials if trial.intermediate_values]
        return sorted(valued, key=lambda trial: (not is_complete(trial), -last_step(trial), -value_of(trial)))

    @property
    def chosen(self) -> int | None:
        """The trial whose configuration was chosen; before the choice the best one, None without any."""
        found = self.summary.confirmed or self.summary.best
        return found.number if found else None

    @property
    def chosen_params(self) -> Mapping[str, Value]:
        """Its hyperparameters."""
        found = self.summary.confirmed or self.summary.best
        return found.params if found else {}

    @property
    def chosen_word(self) -> str:
        """What it is called."""
        return "chosen" if self.summary.confirmed else "best so far"

    @cached_property
    def importances(self) -> Importances | None:
        """What its hyperparameters matter; None where there are too few trials."""
        return importances(self.trials, (*self.milestones, self.steps), list(self.axes))


def searched_loss(stored: StoredSearch, summary: Summary, loss: str) -> SearchedLoss:
    """The search of ``loss``, read from its studies."""
    epochs, folds = int(stored.config["training"]["epochs"]), summary.split.folds
    pruner = stored.pruner(steps=folds or epochs, unit=ByFold.unit if folds else ByEpoch.unit)
    return SearchedLoss(
        loss=loss,
        objective=summary.objective,
        summary=summary.losses[loss],
        steps=pruner.steps,
        unit=pruner.unit,
        pruning=pruner.plan,
        rungs=pruner.rungs,
        milestones=pruner.milestones,
        trials=tuple(trial for trial in stored.trials(loss) if trial.state != TrialState.WAITING),
        confirmations=tuple(stored.trials(loss, Stage.SELECT)),
    )


def is_complete(trial: FrozenTrial) -> bool:
    """Whether it was trained to its end."""
    return bool(trial.state == TrialState.COMPLETE)


def last_step(trial: FrozenTrial) -> int:
    """The last step that it reported."""
    return max(trial.intermediate_values)


def value_of(trial: FrozenTrial) -> float:
    """Its value after its last step, as pruning compared it."""
    return float(trial.intermediate_values[last_step(trial)])


def in_state(trials: Sequence[FrozenTrial], state: TrialState) -> list[FrozenTrial]:
    """Those of ``trials`` in ``state``."""
    return [trial for trial in trials if trial.state == state]


# Trials in words: what hovering over one says, and tables of many.

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
        header=("trial", searched.objective, f"{searched.unit}s", *names, "ended"),
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


# Everything that is known of one trial.

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT, WIDTH = 8, 72


@dataclass(frozen=True, kw_only=True)
class TrialPage:
    """One trial: its row, its objective after each epoch, the path or URL of its best model, and its log.

    ``curve`` draws ``values`` for a terminal, an epoch a column.
    """

    study: str
    objective: str
    row: TrialRow
    values: tuple[float, ...]
    curve: str
    checkpoint: str | None
    log: str


def trial_page(search: StoredSearch, study: str, number: int) -> TrialPage:
    """Trial ``number`` of ``study``, as in ``mpa`` or ``mpa@confirm``.

    Raises:
        Mistakes: the search has no such loss, stage or trial.
    """
    trial = search.trial_of(study, number)
    directory = search.trial_directory(study, number)
    objective = metric_name(search.config["search"]["objective"])
    values = _values(trial, objective)
    kept = [record["checkpoint"] for record in epochs_of(trial) if record["checkpoint"]]
    return TrialPage(
        study=f"{search.name}/{study}",
        objective=objective,
        row=trial_row(trial),
        values=tuple(values),
        curve=drawn(values, objective),
        checkpoint=f"{directory}/{kept[-1]}" if kept else None,
        log=read_log(directory),
    )


def _values(trial: FrozenTrial, objective: str) -> list[float]:
    """The validation after each epoch; none where no classes validate."""
    return [record["metrics"][objective] for record in epochs_of(trial) if objective in record["metrics"]]


def drawn(values: Sequence[float], name: str) -> str:
    """``values`` as columns of block characters, from their least to their greatest; empty without any."""
    if not values:
        return ""
    shown = [values[index * len(values) // min(len(values), WIDTH)] for index in range(min(len(values), WIDTH))]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    eighths = [round((value - low) / span * (HEIGHT * 8 - 1)) + 1 for value in shown]
    rows = []
    for row in reversed(range(HEIGHT)):
        label = {HEIGHT - 1: f"{high:.4f}", 0: f"{low:.4f}"}.get(row, "")
        blocks = "".join(BLOCKS[min(8, max(0, eighth - 8 * row))] for eighth in eighths)
        rows.append(f"{label:>10} {blocks}")
    return "\n".join([f"{name} by epoch, 1 to {len(values)}", *rows])

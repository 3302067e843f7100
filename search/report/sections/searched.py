"""The search of one loss as its figures read it, and its trials as text."""

import html
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from search.goal import Goal
from search.plan.stored import StoredSearch
from search.report.drawing import BAD, COLOURS, FAINT
from search.report.formats import parameters
from search.report.importances import Importances, importances
from search.report.loss_results import LossSummary
from search.report.results import Summary
from search.report.text_table import NOTHING, TextTable
from search.stages import Stage
from search.trials import ByEpoch, ByFold, epochs_of
from spaces.space import Value, position, value_at, value_text
from trainables.mistakes import counted
from trainables.spec import EpochRecord

DEFAULT: Final = 0
"""Number of the trial with the paper's default configuration."""


class Look(NamedTuple):
    """The name, colour and Plotly mark of a trial's state."""

    name: str
    colour: str
    mark: str


LOOKS: Final[Mapping[TrialState, Look]] = {
    TrialState.COMPLETE: Look("complete", COLOURS[0], "circle"),
    TrialState.PRUNED: Look("pruned", FAINT, "triangle-down-open"),
    TrialState.FAIL: Look("failed", BAD, "x"),
    TrialState.RUNNING: Look("running", COLOURS[5], "circle-open"),
}
"""By state, in the order of legends."""


# Hyperparameters as axes.

_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MARGIN = 0.04
"""Share of the range that an axis shows beyond each end."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The hyperparameter ``name`` with its search range."""

    name: str
    distribution: BaseDistribution

    @property
    def range(self) -> FloatDistribution | IntDistribution | None:
        """Return the numeric range; None for a list of choices."""
        return self.distribution if isinstance(self.distribution, FloatDistribution | IntDistribution) else None

    @property
    def choices(self) -> tuple[Value, ...]:
        """Return the choices, numbers sorted; empty for a range."""
        if not isinstance(self.distribution, CategoricalDistribution):
            return ()
        choices = self.distribution.choices
        are_numbers = all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in choices)
        return tuple(sorted(choices)) if are_numbers else choices  # type: ignore[type-var]

    @property
    def text(self) -> str:
        """Return the range or the choices as text."""
        if self.range is None:
            return ", ".join(map(value_text, self.choices))
        ends = f"[{value_text(self.range.low)}, {value_text(self.range.high)}]"
        return f"{ends}, log" if self.range.log else ends

    def place(self, value: Value) -> Any:
        """Return the coordinate of ``value``: the number itself, or the position of a choice."""
        return self.choices.index(value) if self.range is None else value

    def share(self, value: Value) -> float:
        """Return the position of ``value`` in the range, from 0 (low) to 1 (high), on the scale of the range."""
        if self.range is None:
            return self.choices.index(value) / (len(self.choices) - 1)
        return position(self.range, value)  # type: ignore[arg-type]

    def value_at(self, share: float) -> float:
        """Return the number at a share of the range."""
        assert self.range is not None, "choices are not a range"
        return value_at(self.range, share)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return shares of the range with the text of the value there."""
        if self.range is None:
            return [(self.share(choice), value_text(choice)) for choice in self.choices]
        return [(share, value_text(float(self.value_at(share)))) for share in _TICKS]

    @property
    def layout(self) -> dict[str, Any]:
        """Return a Plotly axis that shows the range and a small margin; its :attr:`ends` get dotted lines."""
        title = {"text": html.escape(self.name)}
        if self.range is None:
            texts = [html.escape(value_text(choice)) for choice in self.choices]
            places = list(range(len(texts)))
            return {"title": title, "tickvals": places, "ticktext": texts, "range": [-0.5, len(texts) - 0.5]}
        return {"title": title, "type": "log" if self.range.log else "linear", "range": self._seen}

    @property
    def _seen(self) -> list[float]:
        """Return the limits of the axis; Plotly expects exponents on a logarithmic axis."""
        assert self.range is not None
        ends = [self.value_at(-_MARGIN), self.value_at(1 + _MARGIN)]
        return [math.log10(end) for end in ends] if self.range.log else ends

    @property
    def ends(self) -> tuple[float, ...]:
        """Return both ends of a numeric range."""
        return () if self.range is None else (self.range.low, self.range.high)


# The search of one loss.


@dataclass(frozen=True, kw_only=True)
class SearchedLoss:
    """The search of ``loss``, as its figures read it.

    ``trials`` are the trials that have started, ``confirmations`` those of the confirmed configurations. ``pruning``
    is the pruner's plan as text. Halving compared trials after ``rungs``; ``milestones`` are the steps at which values
    are comparable.
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
    goal: Goal

    @property
    def name(self) -> str:
        """Return the name of its section: letters, digits and hyphens."""
        plain = re.sub(r"[^A-Za-z0-9_]", lambda found: f"-{ord(found[0]):x}-", self.loss)
        return f"loss-{plain.replace('_', '-')}"

    @cached_property
    def records(self) -> Mapping[int, list[EpochRecord]]:
        """Return the epoch records of each trial."""
        return {trial.number: epochs_of(trial) for trial in self.trials}

    @cached_property
    def axes(self) -> Mapping[str, Axis]:
        """Return the hyperparameters that vary, each with the range of the last trial that has it."""
        return {name: Axis(name=name, distribution=entry) for name, entry in self._ranges.items() if not entry.single()}

    @cached_property
    def constants(self) -> Mapping[str, Value]:
        """Return the hyperparameters with a single possible value."""
        values = {name: value for trial in self.trials for name, value in trial.params.items()}
        return {name: value for name, value in values.items() if self._ranges[name].single()}

    @cached_property
    def _ranges(self) -> Mapping[str, BaseDistribution]:
        return {name: entry for trial in self.trials for name, entry in trial.distributions.items()}

    @property
    def numeric(self) -> list[str]:
        """Return the hyperparameters that vary in a numeric range."""
        return [name for name, axis in self.axes.items() if axis.range is not None]

    @cached_property
    def valued(self) -> list[FrozenTrial]:
        """Return the trials with a value, best first: complete ones, then those with the most steps, each by value."""
        valued = [trial for trial in self.trials if trial.intermediate_values]
        return sorted(valued, key=lambda trial: (not is_complete(trial), -last_step(trial), -value_of(trial)))

    @property
    def chosen(self) -> int | None:
        """Return the number of the chosen trial; before the choice, of the best one so far."""
        return self.summary.tuned.number

    @property
    def chosen_params(self) -> Mapping[str, Value]:
        """Return the hyperparameters of that trial."""
        return self.summary.tuned.params or {}

    @property
    def chosen_word(self) -> str:
        """Return the label of that trial."""
        return "chosen" if self.summary.chosen else "best so far"

    @cached_property
    def importances(self) -> Importances | None:
        """Return the importance of each hyperparameter; None with too few trials."""
        return importances(self.trials, (*self.milestones, self.steps), list(self.axes))


def searched_loss(stored: StoredSearch, summary: Summary, loss: str) -> SearchedLoss:
    """Read the search of ``loss`` from its studies."""
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
        goal=Goal.of(stored.config["search"]),
    )


def is_complete(trial: FrozenTrial) -> bool:
    """Return True if the trial finished all its epochs."""
    return bool(trial.state == TrialState.COMPLETE)


def last_step(trial: FrozenTrial) -> int:
    """Return the last step that the trial reported."""
    return max(trial.intermediate_values)


def value_of(trial: FrozenTrial) -> float:
    """Return the value after the last step, as pruning compares it."""
    return float(trial.intermediate_values[last_step(trial)])


def in_state(trials: Sequence[FrozenTrial], state: TrialState) -> list[FrozenTrial]:
    """Return those of ``trials`` in ``state``."""
    return [trial for trial in trials if trial.state == state]


# Trials as text.

MOST_ROWS = 200


def hover(searched: SearchedLoss, trial: FrozenTrial) -> str:
    """Return a trial's number, value, hyperparameters and outcome as Plotly markup."""
    value = f": {searched.objective} {value_of(trial):.4f}" if trial.intermediate_values else ""
    varying = {name: entry for name, entry in trial.params.items() if name in searched.axes}
    lines = [f"{title(searched, trial)}{value}", parameters(varying), why(trial, 160)]
    return "<br>".join(html.escape(part) for line in lines if line for part in textwrap.wrap(line, 70))


def title(searched: SearchedLoss, trial: FrozenTrial) -> str:
    """Return a trial's number and role, such as "trial 3 (chosen)"."""
    roles = {DEFAULT: "default", searched.chosen: searched.chosen_word}
    role = roles.get(trial.number)
    return f"trial {trial.number} ({role})" if role else f"trial {trial.number}"


def why(trial: FrozenTrial, width: int) -> str:
    """Return the outcome of a trial, cut to ``width`` characters."""
    return textwrap.shorten(str(trial.user_attrs.get("outcome", "still running")), width, placeholder=" …")


def trials_table(searched: SearchedLoss, trials: Sequence[FrozenTrial], *, most: int = MOST_ROWS) -> TextTable:
    """Return a table of the first ``most`` of ``trials`` with their values and hyperparameters."""
    names = list(searched.axes)
    return TextTable(
        title="",
        header=("trial", searched.objective, f"{searched.unit}s", *names, "outcome"),
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
        notes=left_out_note(len(trials) - most),
    )


def left_out_note(count: int) -> tuple[str, ...]:
    """Return the note below a table that lacks its last ``count`` trials; empty where it has all."""
    return (f"{counted(count, 'more trial')} not shown; `holdout trials` lists all",) if count > 0 else ()

"""The search of one loss, as its figures look at it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from search.pages.figures.search.axis import Axis
from search.plan.stored import StoredSearch
from search.report.diagnostics.importances import Importances, importances
from search.report.results.loss_summary import LossSummary
from search.report.results.summary import Summary
from search.study.names import Stage
from search.study.pruners import PRUNERS, Pruner, SuccessiveHalving, Unpruned
from search.study.records import epochs_of
from search.study.trial_value import ByEpoch, ByFold
from spaces.value import Value
from trainables.training.epoch_record import EpochRecord

DEFAULT: Final = 0
"""The number of the trial that has the paper's default."""


@dataclass(frozen=True, kw_only=True)
class SearchedLoss:
    """The search of ``loss``. ``trials`` are those that began, ``confirmations`` those of its configurations."""

    loss: str
    objective: str
    summary: LossSummary
    pruner: Pruner
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

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which its trials were compared by halving; none under other rules."""
        return self.pruner.rungs if isinstance(self.pruner, SuccessiveHalving) else ()

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
        # The median rule compares at every step; these are enough to look at.
        between = SuccessiveHalving(steps=self.pruner.steps, unit=self.pruner.unit).rungs
        rungs = () if isinstance(self.pruner, Unpruned) else between
        return importances(self.trials, (*rungs, self.pruner.steps), list(self.axes))


def searched_loss(stored: StoredSearch, summary: Summary, loss: str) -> SearchedLoss:
    """The search of ``loss``, read from its studies."""
    epochs, folds = int(stored.config["training"]["epochs"]), summary.split.folds
    pruner = PRUNERS[stored.config["search"]["pruner"]]
    return SearchedLoss(
        loss=loss,
        objective=summary.objective,
        summary=summary.losses[loss],
        pruner=pruner(steps=folds or epochs, unit=ByFold.unit if folds else ByEpoch.unit),
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

"""The search of one loss as its section and figures read it."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.records.records import Records
from search.results.summary import LossSummary, Summary
from search.show.drawing import BAD, COLOURS, FAINT
from search.tables import PRUNERS
from search.text_table import NOTHING
from spaces.space import Choice, Float, Range, Value, value_text
from trainables.common.ranges import range_of

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


# Ranges of hyperparameters.


def choices(entry: Range) -> tuple[Value, ...]:
    """Return the choices, numbers sorted; empty for numbers between two ends."""
    if not isinstance(entry, Choice):
        return ()
    return tuple(entry.numbers) if len(entry.numbers) == len(entry.choices) else entry.ends


def range_text(entry: Range) -> str:
    if not isinstance(entry, Float):
        return ", ".join(map(value_text, choices(entry)))
    ends = f"[{value_text(entry.low)}, {value_text(entry.high)}]"
    return f"{ends}, log" if entry.log else ends


def param_text(params: Mapping[str, Value], name: str) -> str:
    return value_text(params[name]) if name in params else NOTHING


# Importances by PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255; for parameters that only some trials have,
# arXiv:2601.20800) as Optuna computes it: the difference between the distribution of a parameter's values among the
# better trials and among all trials. Pruned trials are used too.

MIN_TRIALS: Final = 10
"""A rung with fewer trials is ignored."""

BETTER: Final = 0.5
"""Share of better trials: the half that pruning keeps. Optuna's default, a tenth, is one or two trials.

In simulated searches of 16, 32 and 64 trials under halving with much noise, the most important parameter is ranked
first in 72, 83 and 97 %; in 52, 50 and 57 % with complete trials only, and in 10, 32 and 65 % with a tenth of these. If
no parameter matters, the largest of four shares reaches a half by chance (``python -m benchmarks statistics``).
"""


@dataclass(frozen=True, kw_only=True)
class Importances:
    """Shares by hyperparameter, which sum to 1, highest first; ``rungs`` has the number of trials of each step used."""

    shares: Mapping[str, float]
    rungs: Mapping[int, int]


def importances(trials: Sequence[FrozenTrial], rungs: Sequence[int], names: Sequence[str]) -> Importances | None:
    """Compute the importance of each hyperparameter for being in the better half; None if no rung has ten trials.

    Most trials of a search are pruned, so their values at the rungs are used too: at each rung, all trials that reached
    it are compared by their values there, as pruning did. Values of different rungs are never compared. The shares of a
    rung sum to 1; the result is their mean over the rungs, weighted by numbers of trials.

    Args:
        trials: trials of one study; failed ones are used up to their last step.
        rungs: the steps to use, including the last one.
        names: the hyperparameters that vary.
    """
    sums = dict.fromkeys(names, 0.0)
    looked_at: dict[int, int] = {}
    for rung in rungs:
        reached = [trial for trial in trials if rung in trial.intermediate_values]
        if len(reached) < MIN_TRIALS:
            continue
        looked_at[rung] = len(reached)
        for name, share in _shares(reached, rung, names).items():
            sums[name] += share * len(reached)
    if not looked_at or not names:
        return None
    total = sum(looked_at.values())
    ranked = sorted(sums, key=lambda name: -sums[name])
    return Importances(shares={name: sums[name] / total for name in ranked}, rungs=looked_at)


def _shares(trials: Sequence[FrozenTrial], rung: int, names: Sequence[str]) -> dict[str, float]:
    """Return the shares by the values at ``rung`` of the ``trials``, which all reached it."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # loads scikit-learn

    study = optuna.create_study(direction="maximize")
    study.add_trials(
        create_trial(
            params={name: value for name, value in trial.params.items() if name in names},
            distributions={name: entry for name, entry in trial.distributions.items() if name in names},
            value=trial.intermediate_values[rung],
            state=TrialState.COMPLETE,
        )
        for trial in trials
    )
    there = [name for name in names if any(name in trial.params for trial in trials)]
    with warnings.catch_warnings():
        # Parameters that only one trial has or lacks, and trials with equal values.
        warnings.filterwarnings("ignore", "Some regimes for parameter", UserWarning)
        warnings.filterwarnings("ignore", "Target and region quantiles", UserWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=BETTER), params=there)


# The search of one loss.


@dataclass(frozen=True, kw_only=True)
class SearchedLoss:
    """The search of ``loss``, as its figures read it: its pruner (of :data:`PRUNERS`), and the started trials."""

    loss: str
    objective: str
    summary: LossSummary
    pruner: Any
    trials: tuple[FrozenTrial, ...]

    @property
    def name(self) -> str:
        """Return the name of its section: letters, digits and hyphens."""
        plain = re.sub(r"[^A-Za-z0-9_]", lambda found: f"-{ord(found[0]):x}-", self.loss)
        return f"loss-{plain.replace('_', '-')}"

    @cached_property
    def varying(self) -> Mapping[str, Range]:
        """Return the hyperparameters that vary, each with the range of the last trial that has it."""
        drawn = {name: entry for trial in self.trials for name, entry in trial.distributions.items()}
        return {name: range_of(entry) for name, entry in drawn.items() if not entry.single()}

    @property
    def constants(self) -> Mapping[str, Value]:
        """Return the hyperparameters with a single possible value."""
        found = {name: value for trial in self.trials for name, value in trial.params.items()}
        return {name: value for name, value in found.items() if name not in self.varying}

    @cached_property
    def valued(self) -> list[FrozenTrial]:
        """Return the trials with a value, best first: complete ones, then those with the most steps, each by value."""
        valued = [trial for trial in self.trials if trial.intermediate_values]
        return sorted(
            valued, key=lambda trial: (trial.state != TrialState.COMPLETE, -last_step(trial), -value_of(trial))
        )

    @property
    def chosen(self) -> int | None:
        """Return the number of the chosen trial; before the choice, of the best one so far."""
        return self.summary.tuned.number

    @property
    def special(self) -> dict[int | None, Look]:
        """Return the looks of the default's trial and of the chosen one, by number."""
        chosen = Look("chosen" if self.summary.chosen else "best so far", COLOURS[2], "star")
        return {DEFAULT: Look("default", COLOURS[1], "diamond"), self.chosen: chosen}

    @cached_property
    def importances(self) -> Importances | None:
        return importances(self.trials, (*self.pruner.milestones, self.pruner.steps), list(self.varying))


def searched_loss(search: Records, summary: Summary, loss: str) -> SearchedLoss:
    """Read the search of ``loss`` from its studies."""
    steps = int(search.content["training"]["epochs"]) * (summary.split.folds or 1)
    return SearchedLoss(
        loss=loss,
        objective=summary.objective,
        summary=summary.losses[loss],
        pruner=PRUNERS[search.content["search"]["pruner"]](steps=steps),
        trials=tuple(trial for trial in search.trials(loss) if trial.state != TrialState.WAITING),
    )


def last_step(trial: FrozenTrial) -> int:
    return max(trial.intermediate_values)


def value_of(trial: FrozenTrial) -> float:
    """Return the value after the last step, as pruning compares it."""
    return float(trial.intermediate_values[last_step(trial)])


def in_state(trials: Sequence[FrozenTrial], state: TrialState) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state == state]

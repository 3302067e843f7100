"""Trials with equal parameters: what differs between them is noise."""

import math
import statistics
from collections.abc import Iterator, Sequence

from optuna.trial import FrozenTrial, TrialState

from search.report.diagnostics.finding import Finding
from search.study.configurations import by_configuration


def replicates(trials: Sequence[FrozenTrial]) -> Iterator[Finding]:
    """The pooled standard deviation of complete trials with equal parameters and different seeds.

    √(Σ (n − 1) s² / Σ (n − 1)) over the configurations, with n trials of variance s² each.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    groups = [[trial.value or 0.0 for trial in group] for group in by_configuration(complete) if len(group) > 1]
    if not groups:
        return
    freedom = sum(len(values) - 1 for values in groups)
    squares = sum((len(values) - 1) * statistics.variance(values) for values in groups)
    again = f"{len(groups)} configuration{'s were' if len(groups) > 1 else ' was'} trained more than once"
    yield Finding(
        kind="replicates",
        parameters=(),
        sentence=f"{again}: the value of one training has a standard deviation of {math.sqrt(squares / freedom):.4f} "
        f"({freedom} degree{'s' if freedom > 1 else ''} of freedom)",
    )

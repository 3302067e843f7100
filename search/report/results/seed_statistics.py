"""A metric over training seeds, and what became of the seeds."""

from collections import Counter
from collections.abc import Mapping, Sequence

from optuna.trial import FrozenTrial, TrialState

from search.report.results.result import Result


class SeedStatistics(Result):
    """A metric over ``seeds`` training seeds, in the metric's own unit (0 to 1 for all but distances).

    ``values`` has one number a trained model: where folds are trained, a seed has several. ``mean`` is their mean and
    ``std`` their sample deviation, None with one value.
    """

    mean: float
    std: float | None
    seeds: int
    values: tuple[float, ...]


class SeedInterval(SeedStatistics):
    """The same with ``ci95``, the ends of the mean's 95 % interval; None with one seed."""

    ci95: tuple[float, float] | None


class SeedOutcomes(Result):
    """What became of the seeds that a configuration was to be trained with in a stage.

    Of those ``wanted`` so many are ``complete``, in all their folds. ``failed`` counts by cause those of which a
    training failed (DIVERGED, OUT_OF_MEMORY, CODE_ERROR, LOST); the others are ``missing``: they wait, run, or were
    never begun.
    """

    wanted: int
    complete: int
    failed: Mapping[str, int]
    missing: int

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], wanted: int) -> "SeedOutcomes | None":
        """Those of a configuration's trainings in a stage; None where it has none."""
        if not trials:
            return None
        states: dict[int, list[FrozenTrial]] = {}
        for trial in trials:
            states.setdefault(trial.user_attrs["seed"], []).append(trial)
        causes = Counter(cause for of_seed in states.values() if (cause := _cause(of_seed)))
        complete = sum(all(trial.state == TrialState.COMPLETE for trial in of_seed) for of_seed in states.values())
        missing = max(wanted, len(states)) - complete - causes.total()
        return cls(wanted=max(wanted, len(states)), complete=complete, failed=dict(causes), missing=missing)

    @property
    def sentence(self) -> str | None:
        """In words; None where all are complete."""
        if self.complete == self.wanted:
            return None
        failed = [f"{count} failed ({cause})" for cause, count in self.failed.items()]
        missing = [f"{self.missing} missing"] if self.missing else []
        return f"{self.complete} of {self.wanted} seeds; {', '.join([*failed, *missing])}"


def _cause(trials: Sequence[FrozenTrial]) -> str | None:
    """Of what a seed's trainings failed; None where none did."""
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    return failed[0].user_attrs.get("failure", {}).get("cause", "failed") if failed else None

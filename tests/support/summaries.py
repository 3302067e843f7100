"""Summaries made by hand: what is not given is as before the first trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from search.report.results import (
    ChosenConfiguration,
    Confirmed,
    DefaultSummary,
    Incumbent,
    LossSummary,
    SeedStatistics,
    SplitSummary,
    Summary,
    TimeSummary,
    TrialCounts,
)

SPLIT = SplitSummary(
    digest="0" * 64,
    train_classes=3,
    validation_classes=2,
    gallery=2,
    training_half=False,
    test_classes=30,
    folds=None,
    merge=1,
)
NO_TIME = TimeSummary(wall_s=0.0, startup_s=0.0, search_wall_s=0.0, trial_work_s=0.0, slots=1)


def made_summary(losses: Mapping[str, LossSummary], name: str = "made", **fields: Any) -> Summary:
    return Summary(
        **{
            "name": name,
            "split": SPLIT,
            "objective": "map_at_r",
            "noise": None,
            "test_opened": 0,
            "losses": losses,
            "time": NO_TIME,
            **fields,
        }
    )


def made_loss(**fields: Any) -> LossSummary:
    return LossSummary(
        **{
            "trials": TrialCounts(complete=0, pruned=0, failed=0),
            "epochs": 0,
            "ended_early": None,
            "default": made_default(),
            "best": None,
            "confirmed": None,
            "other_splits": None,
            "final": None,
            "test": None,
            "test_small": None,
            "audit": None,
            "anytime": (),
            "diagnostics": (),
            **fields,
        }
    )


def made_default(**fields: Any) -> DefaultSummary:
    nothing = dict.fromkeys(("value", "confirmed", "final", "test", "test_small"))
    return DefaultSummary(**{"params": {}, "clipped": False, **nothing, **fields})


def confirmed(statistics: SeedStatistics) -> Confirmed:
    """Confirmed with ``statistics``, of which nothing is shrunk."""
    return Confirmed(
        mean=statistics.mean,
        std=statistics.std,
        seeds=statistics.seeds,
        values=statistics.values,
        estimate=statistics.mean,
    )


def chosen(statistics: SeedStatistics, *, search_value: float, **params: int) -> ChosenConfiguration:
    """Trial 7 was chosen, and confirmed with ``statistics``."""
    return ChosenConfiguration(
        params=params,
        number=7,
        search_value=search_value,
        mean=statistics.mean,
        std=statistics.std,
        seeds=statistics.seeds,
        values=statistics.values,
        estimate=statistics.mean,
    )


def improvements(*steps: tuple[int, float] | tuple[int, float, float | None]) -> Sequence[Incumbent]:
    """Incumbents given as (epochs, value) or (epochs, value, confirmed)."""
    return tuple(
        Incumbent(epochs=step[0], value=step[1], trial=0, confirmed=step[2] if len(step) == 3 else None)
        for step in steps
    )

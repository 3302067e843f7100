"""Summaries made by hand; values that are not given are as before the first trial."""

from collections.abc import Mapping
from typing import Any

from search.records.campaign import Campaign
from search.results.rows import Row
from search.results.summary import LossSummary, SplitSummary, Summary, TimeSummary, TrialCounts
from search.stages import Role

SPLIT = SplitSummary(
    digest="0" * 64,
    train_classes=3,
    validation_classes=2,
    training_half=False,
    test_classes=30,
    folds=None,
    halves=False,
    merge=1,
    label_noise=0.0,
)
NO_TIME = TimeSummary(wall_s=0.0, startup_s=0.0, search_wall_s=0.0, trial_work_s=0.0, slots=1)


def made_summary(losses: Mapping[str, LossSummary], name: str = "made", **fields: Any) -> Summary:
    """Return a summary of ``losses``, whose rows get the names of the search and the loss."""
    named = {}
    for loss, entry in losses.items():
        rows = {"default": entry.default, "tuned": entry.tuned}
        names = {"search": name, "loss": loss}
        named[loss] = entry.model_copy(update={role: row.model_copy(update=names) for role, row in rows.items()})
    return Summary(
        **{
            "name": name,
            "split": SPLIT,
            "objective": "map_at_r",
            "recommended": None,
            "test_opened": 0,
            "test_overlap": None,
            "losses": named,
            "time": NO_TIME,
            **fields,
        }
    )


def blank_summaries(campaign: Campaign) -> list[Summary]:
    """Return the summaries of a campaign's searches before their first trials."""
    return [made_summary(dict.fromkeys(each.loss_names, made_loss()), each.name) for each in campaign.searches]


def made_loss(**fields: Any) -> LossSummary:
    return LossSummary(
        **{
            "trials": TrialCounts(complete=0, pruned=0, failed=0),
            "epochs": 0,
            "ended_early": None,
            "default": made_row(Role.DEFAULT, number=0, params={}),
            "tuned": made_row(Role.TUNED),
            "best": None,
            "choice": None,
            "anytime": (),
            "diagnostics": (),
            **fields,
        }
    )


def made_row(role: Role = Role.TUNED, **fields: Any) -> Row:
    """Return a row; trial 7 is tuned if anything is given."""
    number = 0 if role is Role.DEFAULT else 7 if fields else None
    return Row(**{"search": "made", "loss": "made", "role": role, "number": number, **fields})

"""Axes of a campaign that are a sweep on the test classes: hyperparameters that no validation chose between."""

from collections.abc import Iterator

from search.campaigns.campaign import Campaign
from search.campaigns.config import VALIDATION

HYPERPARAMETERS = ("space", "training", "training_by_loss", "model")
"""The sections whose settings a search could have chosen by validation."""


def sweeps(campaign: Campaign) -> Iterator[str]:
    """A sentence where the table shows test metrics of several values of hyperparameters."""
    table = campaign.config.table
    axes = [
        axis
        for axis, labels in campaign.config.vary.items()
        if len(labels) > 1 and any(path.split(".")[0] in HYPERPARAMETERS for of in labels.values() for path in of)
    ]
    if axes and any(metric != VALIDATION for metric in table.metrics):
        yield (
            f"not for choosing: {' and '.join(axes)} var{'y' if len(axes) > 1 else 'ies'} on the test classes, so to "
            "take the best would be to choose by the test; a search chooses by validation"
        )

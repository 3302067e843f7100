"""The tournament of losses (Psomas, Metric Learning: A Deep Dive, section 4.2.4.2 and Table 11)."""

import statistics
from collections.abc import Mapping

import numpy as np

from search.report.results.result import Result


class Standing(Result):
    """A loss's ranks, one a setting in the settings' order, 1 the best; ``std`` (n − 1) is None with one setting."""

    loss: str
    ranks: tuple[float, ...]
    total: float
    mean: float
    std: float | None


def tournament(table: Mapping[str, Mapping[str, float]]) -> list[Standing]:
    """The losses ranked in every setting of ``table``, and the ranks summed; the best first.

    Losses that tie in a setting share the mean of their ranks.

    Args:
        table: for each setting (a network and embedding size, say) each loss's score, higher is better.

    Raises:
        ValueError: the settings have not the same losses, so that sums of ranks would mean nothing.
    """
    losses = list(next(iter(table.values()), {}))
    for setting, scores in table.items():
        if scores.keys() != set(losses):
            raise ValueError(
                f"Every setting of a tournament needs the same losses: {setting} has {', '.join(scores)} and the "
                f"first has {', '.join(losses)}; leave out what is not everywhere."
            )
    if not losses:
        return []
    from scipy.stats import rankdata  # half a second, for campaigns of several losses alone

    ranks_SL = np.array([rankdata([-scores[loss] for loss in losses]) for scores in table.values()])
    standings = [_standing(loss, ranks) for loss, ranks in zip(losses, ranks_SL.T.tolist(), strict=True)]
    return sorted(standings, key=lambda standing: standing.total)


def _standing(loss: str, ranks: list[float]) -> Standing:
    return Standing(
        loss=loss,
        ranks=tuple(ranks),
        total=sum(ranks),
        mean=statistics.fmean(ranks),
        std=statistics.stdev(ranks) if len(ranks) > 1 else None,
    )

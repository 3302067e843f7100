"""Rank the losses of a finished campaign: `python -m examples.papers.tournament NAME [--runs RUNS]`.

This is the tournament of Psomas, Metric Learning: A Deep Dive (section 4.2.4.2 and Table 11), with its significance.
Equal losses have some order too. Friedman's test and Nemenyi's critical difference are those that Demšar 2006
("Statistical comparisons of classifiers over multiple data sets", section 3.2.2) recommends. For 3 to 10 equal losses
in 3 to 20 settings, Friedman's test rejects in 2 to 7 % of cases, and some two losses are a critical difference apart
in 1 to 5 %.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.records.campaign import LOSS, VALIDATION
from search.records.runs import CampaignFolder
from search.results.campaign import stored_result

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """Ranks of the losses, 1 the best, with a row for each loss, best first, and a column for each setting.

    ``p`` is Friedman's p-value for equal losses; None if all losses tie in all settings. Two mean ranks that differ by
    ``critical_difference`` differ significantly (5 % for all pairs together). Both are None with fewer than three
    losses or settings.
    """

    ranks: "pandas.DataFrame"
    p: float | None = None
    critical_difference: float | None = None

    def summary(self) -> "pandas.DataFrame":
        """Return the wins, the sum, the mean and the sample deviation of each loss's ranks."""
        ranks = self.ranks
        columns = {"wins": (ranks == 1).sum(axis=1), "sum": ranks.sum(axis=1), "mean": ranks.mean(axis=1)}
        return ranks.iloc[:, :0].assign(**columns, deviation=ranks.std(axis=1))

    def sentence(self) -> str:
        """Return what the ranks show."""
        if self.p is None or self.critical_difference is None:
            return "Too few losses or settings to test the ranks, or all losses tie."
        if self.p > 0.05:
            return f"No significant difference between the ranks (Friedman's p {self.p:.3f}): the order may be chance."
        return (
            f"Friedman's p {self.p:.3f}; losses differ if their mean ranks are {self.critical_difference:.2f} or more "
            "apart (Nemenyi, 5 % for all pairs)."
        )


def tournament(scores: "pandas.DataFrame") -> Tournament:
    """Rank the losses (rows) in each setting (columns) by their ``scores``, higher is better; ties share their mean."""
    from scipy.stats import friedmanchisquare, studentized_range

    ranks = scores.rank(ascending=False)
    ranks = ranks.loc[ranks.sum(axis=1).sort_values(kind="stable").index]
    losses, settings = ranks.shape
    if min(losses, settings) < 3:
        return Tournament(ranks=ranks)
    p = float(friedmanchisquare(*ranks.to_numpy()).pvalue) if ranks.to_numpy().std() > 0 else None
    critical = float(studentized_range.ppf(0.95, losses, math.inf)) * math.sqrt(losses * (losses + 1) / (12 * settings))
    return Tournament(ranks=ranks, p=p, critical_difference=critical)


def scores_of(cells: "pandas.DataFrame", axes: Sequence[str], data: Sequence[str]) -> "pandas.DataFrame":
    """Return the scores that rank the losses, from the ``cells`` of one role and metric; empty without a ranking.

    Each search is a setting, for the losses that all have. In a campaign over data sets (the labels of the axes
    ``data``) each data set is one, since searches of one data set are not independent: a loss's score is its mean over
    the other axes, and if the searches share no two losses, the rows are ranked.
    """
    shared = [loss for loss, of in cells.groupby(LOSS, sort=False) if len(of) == len(cells[[*axes]].drop_duplicates())]
    if data and len(shared) < 2:
        rows = [LOSS, *(axis for axis in axes if axis not in data)]
    else:
        rows, cells = [LOSS], cells[cells[LOSS].isin(shared)]
    cells = cells.assign(row=cells[rows].agg(" ".join, axis=1), setting=cells[[*(data or axes)]].agg(" ".join, axis=1))
    everywhere = cells.groupby("row")["setting"].transform("nunique") == cells["setting"].nunique()
    of_rows = cells[everywhere].groupby(["row", "setting"], sort=False)["mean"]
    scores = of_rows.apply(lambda means: means.mean(skipna=False)).unstack()
    return scores.iloc[:0] if scores.isna().any(axis=None) else scores


def tournaments(folder: CampaignFolder) -> dict[str, Tournament]:
    """Return the tournament of each role, by the first test metric of the campaign's table."""
    config, result = folder.stored(), stored_result(folder)
    metric = next((name for name in config.table.metrics if name != VALIDATION), "")
    cells = result.to_frame().astype({"mean": float})
    found = {}
    for role in map(str, config.table.roles):
        of_role = cells[(cells["configuration"] == role) & (cells["metric"] == metric)]
        scores = scores_of(of_role, [*config.vary], result.data_axes)
        if min(scores.shape) > 1:
            found[role] = tournament(scores)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the tournaments."""
    parser = argparse.ArgumentParser(prog="python -m examples.papers.tournament")
    parser.add_argument("name", help="name of a finished campaign")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    given: Any = parser.parse_args(arguments)
    for role, found in tournaments(CampaignFolder(given.runs, given.name)).items():
        print(f"{role}, {found.ranks.shape[1]} settings\n{found.summary().to_string(float_format='{:.2f}'.format)}")
        print(found.sentence())


if __name__ == "__main__":
    main()

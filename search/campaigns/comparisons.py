"""Comparisons within a campaign: pairs, trends, curves and rankings."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from search.campaigns.cells import (
    METRIC,
    ROLE,
    CampaignCurve,
    Cell,
    Coordinates,
    Standing,
    Tournament,
    Trend,
    axes_of,
    columns_of,
    data_axes,
    joined,
    labels_of,
    row_axes,
    rows_of,
    tested_metrics,
)
from search.campaigns.curves import compared_curves
from search.config.campaign import LOSS, Campaign, CampaignConfig
from search.config.search_config import SearchSection
from search.difference import LEVEL, Family
from search.plan.search import OpenedSearch
from search.report.comparison import image_set_of
from search.report.pairs import Comparable, comparable_rows, pairs_of
from search.report.results import LossSummary, Pair, Summary
from search.report.rows import RowKey
from search.stages import UNTRAINED, Role

# Pairs and trends on the test classes.


def campaign_family(campaign: Campaign) -> Family:
    """Return the rows, pairs and metrics of the table, which are frozen with the choices."""
    return Family(
        metrics=frozenset(tested_metrics(campaign.config)),
        rows=frozenset(rows_of(campaign)),
        pairs=frozenset(map(frozenset, wanted_pairs(campaign))),
        within=campaign.members[0].config.final.within,
    )


def comparisons(
    campaign: Campaign, results: Sequence[tuple[OpenedSearch, Summary]]
) -> tuple[list[Pair], list[Trend], list[str]]:
    """Return the pairs and trends of the tested rows of each test set, and sentences on what is left out."""
    wanted, coordinates = wanted_pairs(campaign), paired_rows(campaign)
    numbers = [axis for axis in campaign.config.vary if axis not in search_axes(campaign)]
    pairs: list[Pair] = []
    found: list[Trend] = []
    left_out: list[str] = []
    image_sets = [image_set_of(search.plan.folder) for search, _ in results]
    for image_set in dict.fromkeys(image_sets):
        sharing = [result for result, its in zip(results, image_sets, strict=True) if its == image_set]
        folders = [search.plan.folder for search, _ in sharing]
        rows = [row for _, summary in sharing for row in summary.rows]
        keys = (*coordinates, *(key for key in rows_of(campaign) if is_untrained(key)))
        tested, missing = comparable_rows(folders, rows, tested_metrics(campaign.config), keys)
        left_out += missing
        if tested:
            pairs += pairs_of(tested, wanted, campaign.members[0].config.final.within)
            found += trends(tested, coordinates, numbers)
    return pairs, found, left_out


def is_untrained(key: RowKey) -> bool:
    """Return True for the row of a search's untrained network."""
    return key.role is Role.BASELINE and key.loss == UNTRAINED


def paired_rows(campaign: Campaign) -> Coordinates:
    """Return the loss and the labels of the rows that are paired: the tuned ones if the table has both roles."""
    role = Role.TUNED if Role.TUNED in campaign.config.table.roles else Role.DEFAULT
    return {
        key: {name: label for name, label in place.items() if name != ROLE}
        for key, place in rows_of(campaign).items()
        if key.role is role
    }


def paired_columns(campaign: Campaign) -> list[str]:
    """Return the coordinates that name the columns within which rows are paired."""
    rows = row_axes(campaign.config, data_axes(campaign))
    return columns_of(campaign.config, paired_rows(campaign).values(), rows)


def wanted_pairs(campaign: Campaign) -> list[tuple[RowKey, RowKey]]:
    """Return all pairs of rows of a column, and of each row with the untrained network of its search."""
    columns, rows = paired_columns(campaign), paired_rows(campaign)
    by_column: dict[str, list[RowKey]] = {}
    for key, place in rows.items():
        by_column.setdefault(joined(place, columns), []).append(key)
    pairs = [pair for keys in by_column.values() for pair in itertools.combinations(keys, 2)]
    untrained = {key.search: key for key in rows_of(campaign) if is_untrained(key)}
    return [*pairs, *((key, untrained[key.search]) for key in rows if key.search in untrained)]


MIN_LABELS = 3
"""A trend has at least three labels; two are a pair."""


def trends(tested: Comparable, coordinates: Coordinates, axes: Sequence[str]) -> list[Trend]:
    """Return the trends along each of ``axes`` whose labels are all numbers, of rows tested on one test set.

    Labels are equidistant steps in their order, whatever their size: 1, 3 and 12 proxies are three steps.
    """
    lines = [(axis, line) for axis in axes for line in _lines(tested, coordinates, axis)]
    found = []
    for axis, line in lines:
        # the change of the least-squares line through the rows' means, from first to last
        steps = np.arange(len(line)) - (len(line) - 1) / 2
        weights = (len(line) - 1) * steps / (steps**2).sum()
        estimate = tested.rows.contrast(dict(zip(line, weights.tolist(), strict=True)), len(lines))
        found.append(
            Trend(
                axis=axis,
                labels=tuple(coordinates[key][axis] for key in line),
                coordinates={name: label for name, label in coordinates[line[0]].items() if name != axis},
                metric=tested.metric,
                change=estimate.value,
                ci95=estimate.ci95,
                p=estimate.p,
                p_corrected=estimate.p_corrected,
                differ=estimate.differs,
            )
        )
    return found


def _lines(tested: Comparable, coordinates: Coordinates, axis: str) -> Iterator[list[RowKey]]:
    """Yield rows that only differ in their number on ``axis``, in its order."""
    try:
        numbers = {key: float(place[axis]) for key, place in coordinates.items()}
    except ValueError:
        return
    lines: dict[str, list[RowKey]] = {}
    for key, place in coordinates.items():
        if key in tested.seeds:
            lines.setdefault(joined(place, (name for name in place if name != axis)), []).append(key)
    yield from (sorted(keys, key=numbers.__getitem__) for keys in lines.values() if len(keys) >= MIN_LABELS)


# Anytime curves of campaigns that compare ways to search.


def search_axes(campaign: Campaign) -> tuple[str, ...]:
    """Return the axes along which searches with otherwise equal labels search in different ways."""
    return axes_of(campaign, lambda config: _way(config.search))


def _way(search: SearchSection) -> tuple[str | float | None, ...]:
    """Return the settings that define a way to search."""
    return search.sampler, search.pruner, search.trials, search.epochs, search.hours, search.budget


def campaign_curves(campaign: Campaign, summaries: Sequence[Summary]) -> Iterator[CampaignCurve]:
    """Yield for each loss the curve of each way to search: the mean over the other axes (seeds, say).

    None if all searches search in the same way, or if they differ in their objective.
    """
    axes = search_axes(campaign)
    objectives = {member.config.objective for member in campaign.members}
    if not axes or len(objectives) > 1:
        return
    ways: dict[str, dict[str, list[LossSummary]]] = {}
    for member, summary in zip(campaign.members, summaries, strict=True):
        way = joined(labels_of(campaign, member), axes)
        for loss, entry in summary.losses.items():
            ways.setdefault(loss, {}).setdefault(way, []).append(entry)
    (objective,) = objectives
    others = tuple(axis for axis, labels in campaign.config.vary.items() if axis not in axes and len(labels) > 1)
    for loss, entries in ways.items():
        yield from compared_curves(loss, objective, entries, others)


# The tournament of losses (Psomas, Metric Learning: A Deep Dive, section 4.2.4.2 and Table 11), and its significance.
#
# Equal losses have some order too. Friedman's test and Nemenyi's critical difference are those that Demšar 2006
# ("Statistical comparisons of classifiers over multiple data sets", section 3.2.2) recommends. For equal losses in 3 to
# 20 settings, 3 to 10 of them, Friedman's test rejects in 2 to 7 % of cases, and some two losses are a critical
# difference apart in 1 to 5 %.


def standings(config: CampaignConfig, data: Sequence[str], cells: Sequence[Cell], role: Role) -> Tournament | None:
    """Rank the losses that all searches share, by the table's first test metric.

    Each search is a setting. In a campaign over data sets (the labels of the axes ``data``) each data set is one, since
    searches of one data set are not independent: a loss's score is its mean over the other axes, and if the searches
    share no two losses, the rows are ranked. None with one setting or one loss, and if a number is missing.
    """
    metric = next(iter(tested_metrics(config)), None)
    places = [
        (cell.coordinates, cell.mean)
        for cell in cells
        if (cell.coordinates[ROLE], cell.coordinates[METRIC]) == (role, metric)
    ]
    searches: dict[str, set[str]] = {}
    for place, _ in places:
        searches.setdefault(place[LOSS], set()).add(joined(place, config.vary))
    every = set().union(*searches.values())
    shared = [loss for loss, found in searches.items() if found == every]
    others = [axis for axis in config.vary if axis not in data] if data and len(shared) < 2 else []
    scores: dict[str, dict[str, list[float | None]]] = {}
    for place, mean in places:
        if others or place[LOSS] in shared:
            of_setting = scores.setdefault(joined(place, data or config.vary), {})
            of_setting.setdefault(joined(place, (LOSS, *others)), []).append(mean)
    names = [name for name in next(iter(scores.values()), ()) if all(name in found for found in scores.values())]
    means = {
        setting: {name: mean for name in names if (mean := _mean(found[name])) is not None}
        for setting, found in scores.items()
    }
    if len(means) < 2 or len(names) < 2 or any(len(found) < len(names) for found in means.values()):
        return None
    return tournament(means)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def tournament(table: Mapping[str, Mapping[str, float]]) -> Tournament | None:
    """Rank the losses in each setting of ``table``; None without losses.

    Losses that tie in a setting share the mean of their ranks.

    Args:
        table: for each setting (a network and embedding size, say) the score of each loss, higher is better.

    Raises:
        ValueError: the settings have different losses, so that sums of ranks would mean nothing.
    """
    losses = list(next(iter(table.values()), {}))
    for setting, scores in table.items():
        if scores.keys() != set(losses):
            raise ValueError(
                f"Every setting of a tournament needs the same losses: {setting} has {', '.join(scores)} and the "
                f"first has {', '.join(losses)}; leave out the losses that some setting lacks."
            )
    if not losses:
        return None
    from scipy.stats import friedmanchisquare, rankdata, studentized_range  # takes 0.5 s to import

    ranks_SL = np.array([rankdata([-scores[loss] for loss in losses]) for scores in table.values()])
    standings = [_standing(loss, ranks) for loss, ranks in zip(losses, ranks_SL.T.tolist(), strict=True)]
    p = critical = None
    settings, count = ranks_SL.shape
    if min(settings, count) > 2:
        if ranks_SL.std() > 0:  # the test divides by the deviation
            p = float(friedmanchisquare(*ranks_SL.T).pvalue)
        deviation = math.sqrt(count * (count + 1) / (12 * settings))
        critical = float(studentized_range.ppf(1 - LEVEL, count, math.inf)) * deviation
    return Tournament(
        standings=tuple(sorted(standings, key=lambda standing: standing.total)),
        settings=settings,
        p=p,
        critical_difference=critical,
    )


def _standing(loss: str, ranks: list[float]) -> Standing:
    return Standing(
        loss=loss,
        ranks=tuple(ranks),
        total=sum(ranks),
        mean=statistics.fmean(ranks),
        std=statistics.stdev(ranks) if len(ranks) > 1 else None,
    )

"""Comparisons within a campaign: pairs, trends, curves, optimism and rankings."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

import numpy as np

from search.campaigns.cells import (
    METRIC,
    ROLE,
    CampaignCurve,
    CampaignPair,
    Cell,
    Optimism,
    Trend,
    all_coordinates,
    axes_of,
    columns_of,
    data_axes,
    in_unit,
    row_axes,
)
from search.config.campaign import LOSS, VALIDATION, Campaign
from search.config.search_config import SearchSection
from search.plan.search import OpenedSearch
from search.report.anytime import compared_curves
from search.report.comparison import image_set_of
from search.report.loss_results import LossSummary
from search.report.pairs import METHOD, Comparable, comparable_rows, pairs_of
from search.report.results import Summary
from search.report.rows import Row, RowKey, mean_of
from search.report.statistics import Estimate, Tournament, tournament
from search.stages import BASELINES, UNTRAINED, Role

Coordinates = Mapping[RowKey, Mapping[str, str]]
"""The loss and the labels of each row to compare."""

# Pairs and trends on the test classes.

PAIRED = (
    "all pairs of rows of a column, and each row with the untrained network of its search if there is one; "
    f"{METHOD} the pairs of one test set"
)


def comparisons(
    campaign: Campaign, results: Sequence[tuple[OpenedSearch, Summary]]
) -> tuple[list[CampaignPair], list[Trend], list[str]]:
    """Return the pairs and trends of the tested rows of each test set, and sentences on what is left out.

    If the table has both roles, the tuned rows are compared.
    """
    coordinates, columns = paired_rows(campaign), paired_columns(campaign)
    numbers = [axis for axis in campaign.config.vary if axis not in search_axes(campaign)]
    pairs: list[CampaignPair] = []
    found: list[Trend] = []
    left_out: list[str] = []
    image_sets = [image_set_of(search.plan.folder) for search, _ in results]
    for image_set in dict.fromkeys(image_sets):
        sharing = [result for result, its in zip(results, image_sets, strict=True) if its == image_set]
        folders = [search.plan.folder for search, _ in sharing]
        rows = [row for _, summary in sharing for row in summary.rows]
        baselines = baseline_rows(campaign)
        keys = (*coordinates, *(key for key in baselines if key.loss == UNTRAINED))
        tested, missing = comparable_rows(folders, rows, tested_metrics(campaign), keys)
        left_out += missing
        if tested:
            within = campaign.members[0].config.final.within
            pairs += differences(tested, {**coordinates, **baselines}, row_axes(campaign), columns, within)
            found += trends(tested, coordinates, numbers)
    return pairs, found, left_out


def tested_metrics(campaign: Campaign) -> list[str]:
    """Return the metrics of the table that the test measures."""
    return [name for name in campaign.config.table.metrics if name != VALIDATION]


def paired_columns(campaign: Campaign) -> list[str]:
    """Return the coordinates that name the columns within which rows are paired."""
    columns = columns_of(campaign, all_coordinates(campaign), row_axes(campaign))
    return [key for key in columns if key not in (ROLE, METRIC)]


def paired_rows(campaign: Campaign) -> Coordinates:
    """Return the rows that are paired: the tuned ones if the table has both roles."""
    return rows_of_role(campaign, Role.TUNED if Role.TUNED in campaign.config.table.roles else Role.DEFAULT)


def rows_of_role(campaign: Campaign, role: Role) -> Coordinates:
    """Return the rows of the configurations with this role."""
    return {
        RowKey(search=member.config.name, loss=loss, role=role): {
            LOSS: loss,
            **dict(zip(campaign.config.vary, member.labels, strict=True)),
        }
        for member in campaign.members
        for loss in member.config.loss_names
    }


def baseline_rows(campaign: Campaign) -> Coordinates:
    """Return the rows of the networks without training, in searches from pretrained weights."""
    return {
        RowKey(search=member.config.name, loss=name, role=Role.BASELINE): {
            LOSS: name,
            **dict(zip(campaign.config.vary, member.labels, strict=True)),
        }
        for member in campaign.members
        if member.config.model.is_pretrained
        for name in BASELINES
    }


def differences(
    tested: Comparable, coordinates: Coordinates, rows: Sequence[str], columns: Sequence[str], within: float | None
) -> list[CampaignPair]:
    """Return the pairs of rows that were tested on one test set; ``rows`` and ``columns`` are those of the table.

    ``within`` is the margin of equivalence.
    """
    names = {key: " ".join(found[axis] for axis in (*rows, *columns)) for key, found in coordinates.items()}
    return [
        CampaignPair(**dict(pair), names=(names[pair.first], names[pair.second]))
        for pair in pairs_of(tested, wanted_pairs(coordinates, columns), within)
    ]


def wanted_pairs(coordinates: Coordinates, columns: Sequence[str]) -> list[tuple[RowKey, RowKey]]:
    """Return all pairs of rows of a column, and of each row with the untrained network of its search."""
    by_column: dict[tuple[str, ...], list[RowKey]] = {}
    configured = {key: found for key, found in coordinates.items() if key.role is not Role.BASELINE}
    for key, found in configured.items():
        by_column.setdefault(tuple(found[axis] for axis in columns), []).append(key)
    pairs = [pair for keys in by_column.values() for pair in itertools.combinations(keys, 2)]
    untrained = {key.search: key for key in coordinates if key.role is Role.BASELINE and key.loss == UNTRAINED}
    return [*pairs, *((key, untrained[key.search]) for key in configured if key.search in untrained)]


MIN_LABELS = 3
"""A trend has at least three labels; two are a pair."""


def trends(tested: Comparable, coordinates: Coordinates, axes: Sequence[str]) -> list[Trend]:
    """Return the trends along each of ``axes`` whose labels are all numbers, of rows tested on one test set.

    Labels are equidistant steps in their order, whatever their size: 1, 3 and 12 proxies are three steps.
    """
    lines = [(axis, keys) for axis in axes for keys in _lines(tested, coordinates, axis)]
    found = [(axis, keys, _change(tested, [key for _, key in keys], len(lines))) for axis, keys in lines]
    return [
        Trend(
            axis=axis,
            labels=tuple(label for label, _ in keys),
            coordinates={name: label for name, label in coordinates[keys[0][1]].items() if name != axis},
            metric=tested.metric,
            change=estimate.value,
            ci95=estimate.ci95,
            p=estimate.p,
            p_corrected=estimate.p_corrected,
            differ=estimate.differs,
        )
        for axis, keys, estimate in found
    ]


def _lines(tested: Comparable, coordinates: Coordinates, axis: str) -> Iterator[list[tuple[str, RowKey]]]:
    """Yield rows that only differ in their number on ``axis``, in its order."""
    if not all(_is_number(found[axis]) for found in coordinates.values()):
        return
    lines: dict[tuple[str, ...], list[tuple[str, RowKey]]] = {}
    for key, found in coordinates.items():
        if key in tested.seeds:
            others = tuple(label for name, label in found.items() if name != axis)
            lines.setdefault(others, []).append((found[axis], key))
    for keys in lines.values():
        if len(keys) >= MIN_LABELS:
            yield sorted(keys, key=lambda entry: float(entry[0]))


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def _change(tested: Comparable, keys: Sequence[RowKey], tests: int) -> Estimate:
    """Return the change of the least-squares line through the rows' means, one of ``tests``, from first to last."""
    steps = np.arange(len(keys)) - (len(keys) - 1) / 2
    weights = (len(keys) - 1) * steps / (steps**2).sum()
    return tested.rows.contrast(dict(zip(keys, weights.tolist(), strict=True)), tests)


# Anytime curves of campaigns that compare ways to search.


def search_axes(campaign: Campaign) -> list[str]:
    """Return the axes along which searches with otherwise equal labels search in different ways."""
    return axes_of(campaign, lambda config: _way(config.search))


def _way(search: SearchSection) -> tuple[str | float | None, ...]:
    """Return the settings that define a way to search."""
    return search.sampler, search.pruner, search.trials, search.epochs, search.hours, search.budget


def campaign_curves(campaign: Campaign, summaries: Sequence[Summary]) -> list[CampaignCurve]:
    """Return for each loss the curve of each way to search: the mean over the other axes (seeds, say).

    None if all searches search in the same way, or if they differ in their objective.
    """
    axes = search_axes(campaign)
    if not axes or len({member.config.objective for member in campaign.members}) > 1:
        return []
    ways: dict[str, dict[str, list[LossSummary]]] = {}
    for member, summary in zip(campaign.members, summaries, strict=True):
        labels = dict(zip(campaign.config.vary, member.labels, strict=True))
        for loss, entry in summary.losses.items():
            ways.setdefault(loss, {}).setdefault(" ".join(labels[axis] for axis in axes), []).append(entry)
    return [
        CampaignCurve(way=way, **dict(curve))
        for loss, entries in ways.items()
        for way, curve in compared_curves(loss, entries).items()
    ]


# Optimism: the objective after each stage, from the search to the test classes.


def optimism(campaign: Campaign, summaries: Sequence[Summary]) -> dict[Role, Optimism]:
    """Return the objective's mean over all searches and losses after each stage, by the table's roles.

    A stage that some search lacks is None: trainings on all classes have no validation, and values confirmed on halves
    have a gallery of their own. Empty if the searches differ in their objective.
    """
    objectives = {summary.objective for summary in summaries}
    if len(objectives) > 1:
        return {}
    (objective,) = objectives
    rows = [row for summary in summaries for row in summary.rows]
    halves = any(summary.split.halves for summary in summaries)
    return {
        role: _optimism([row for row in rows if row.role is role], objective, halves=halves)
        for role in campaign.config.table.roles
    }


def _optimism(rows: Sequence[Row], objective: str, *, halves: bool) -> Optimism:
    return Optimism(
        objective=objective,
        count=len(rows),
        search=_mean([row.search_value for row in rows]),
        confirmed=None if halves else _mean([mean_of(row.confirmed) for row in rows]),
        final=_mean([mean_of(row.final) for row in rows]),
        test_small=_mean([mean_of(row.test_small) for row in rows]),
        test=_mean([mean_of((row.test or {}).get(objective)) for row in rows]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def optimism_sentences(found: Mapping[Role, Optimism]) -> Iterator[str]:
    """Yield a sentence per role, and one that splits the drop into choice, other classes and larger gallery."""
    for role, entry in found.items():
        stages = (
            (entry.search, "in the search"),
            (entry.confirmed, "confirmed"),
            (entry.final, "in the trainings for the test"),
            (entry.test_small, "on test galleries like validation"),
            (entry.test, "on the test classes"),
        )
        if values := [f"{in_unit(entry.objective, value)} {words}" for value, words in stages if value is not None]:
            yield f"{entry.objective} of the {role} configurations, mean of {entry.count}: {', '.join(values)}"
        if None not in (way := (entry.search, entry.final, entry.test_small, entry.test)):
            lost = [
                in_unit(entry.objective, before - after, "+")
                for before, after in pairwise(cast("tuple[float, ...]", way))
            ]
            choice, classes, gallery = lost
            yield f"the drop: {choice} from the choice, {classes} from other classes, {gallery} from the larger gallery"


# The tournament of the losses.


def measured_mean(cell: Cell) -> float | None:
    """Return our number in a cell."""
    return cell.mean


def published_number(cell: Cell) -> float | None:
    """Return the paper's number in a cell."""
    return cell.published


def standings(
    campaign: Campaign,
    cells: Sequence[Cell],
    role: Role,
    number_in: Callable[[Cell], float | None] = measured_mean,
) -> Tournament | None:
    """Rank the losses that all searches share, by the table's first test metric.

    Each search is a setting. In a campaign over data sets each data set is one, since searches of one data set are not
    independent: a loss's score is its mean over the other axes, and if the searches share no two losses, the rows are
    ranked. None with one setting or one loss, and if a number is missing.
    """
    metric = next((name for name in campaign.config.table.metrics if name != VALIDATION), None)
    known = {
        tuple(cell.coordinates[key] for key in (LOSS, *campaign.config.vary)): number
        for cell in cells
        if (cell.coordinates[ROLE], cell.coordinates[METRIC]) == (role, metric)
        and (number := number_in(cell)) is not None
    }
    shared = set.intersection(*(set(member.config.loss_names) for member in campaign.members))
    axes = data_axes(campaign)
    others = [axis for axis in campaign.config.vary if axis not in axes] if axes and len(shared) < 2 else []
    found: dict[str, dict[str, list[float | None]]] = {}
    for member in campaign.members:
        at = dict(zip(campaign.config.vary, member.labels, strict=True))
        scores = found.setdefault(" ".join(at[axis] for axis in axes or at), {})
        for loss in member.config.loss_names if others else filter(shared.__contains__, member.config.loss_names):
            ranked = " ".join((loss, *(at[axis] for axis in others)))
            scores.setdefault(ranked, []).append(known.get((loss, *member.labels)))
    names = [name for name in next(iter(found.values())) if all(name in scores for scores in found.values())]
    means = {
        setting: {name: mean for name in names if (mean := _mean(scores[name])) is not None}
        for setting, scores in found.items()
    }
    if len(found) < 2 or len(names) < 2 or any(len(scores) < len(names) for scores in means.values()):
        return None
    return tournament(means)

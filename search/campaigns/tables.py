"""A campaign's result as tables of text and as CSV, next to published numbers."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from search.campaigns.cells import (
    CampaignCurve,
    CampaignPair,
    CampaignResult,
    FoldModel,
    Trend,
    by_data_set,
    campaign_table,
    data_axes,
    digits,
    in_unit,
    interval_in_unit,
    measured_metric,
    row_axes,
    unit,
)
from search.campaigns.comparisons import PAIRED, optimism_sentences, search_axes
from search.config.campaign import (
    LOSS,
    VALIDATION,
    Campaign,
    CampaignConfig,
    Printed,
    read_config,
    recipes_of,
    search_file,
)
from search.config.search_config import differences, validate_config
from search.report.anytime import anytime_table
from search.report.formats import (
    NO_DIFFERENCE,
    RANKS,
    RANKS_BESIDE,
    is_against_baseline,
    p_value,
    parameters,
    ranks_beside,
    training_sentence,
    verdict,
)
from search.report.statistics import LEVEL, Tournament
from search.report.text_table import NOTHING, TextTable
from search.stages import Role
from trainables.mistakes import Mistakes

# Published numbers hold for the paper's setting only; settings of the command line may change it.

PLACE_KEYS = ("root", "cache")
"""Settings of a data set's location, on which numbers do not depend."""
SHOWN = 3
"""Number of differing entries that are named."""

Settings = Mapping[str, Mapping[str, Any]]
"""The settings of each cell, by its name in a campaign file."""


def comparable(content: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the campaign file ``content`` without published numbers that belong to another setting.

    ``written`` is the file before the settings of the command line, for which the numbers hold. Each section that loses
    numbers gets the reason. A file with mistakes is returned unchanged.
    """
    if content == written:
        return content
    try:
        config, as_written = read_config(content), read_config(written)
        ours, theirs = _cells(config), _cells(as_written)
    except Mistakes:
        return content
    return {
        **content,
        "published": [_kept(section, ours, theirs) for section in config.published],
        "published_choices": [_kept(section, ours, theirs) for section in config.published_choices],
    }


def _kept(section: Printed, ours: Settings, theirs: Settings) -> dict[str, Any]:
    """Return ``section`` with the cells whose settings are unchanged; losses that are left out need no reason."""
    found = {key: list(_differing(ours[key], theirs[key])) for key in section.cells if key in ours and key in theirs}
    changes = list(dict.fromkeys(change for key in found for change in found[key]))
    gone = [key for key in theirs if key not in ours or found.get(key)]
    kept = {key: values for key, values in section.cells.items() if key not in gone}
    reason = {"left_out": _reason(changes)} if changes else {}
    return {**section.model_copy(update={"cells": kept}).model_dump(mode="json"), **reason}


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    for key, here, there in differences(ours, theirs):
        yield f"{key} is {here!r} here and {there!r} there"


def _reason(changes: Sequence[str]) -> str:
    more = f", and {len(changes) - SHOWN} more differ" if len(changes) > SHOWN else ""
    return f"of another setting: {', '.join(changes[:SHOWN])}{more}"


def _cells(config: CampaignConfig) -> dict[str, dict[str, Any]]:
    """Return the settings of each cell of a campaign's table."""
    recipes = recipes_of(config)
    found = {}
    for labels in product(*config.vary.values()):
        content = search_file(config, recipes, labels)
        search = validate_config(content).built
        assert search is not None, "a search file that cannot be built"
        images = content.get("dataset", {})
        dataset = {key: value for key, value in images.items() if key not in PLACE_KEYS and value not in (None, False)}
        for loss in search.loss_names:
            shown = search.of_loss(loss).model_dump(mode="json", include={"split", "model", "training"})
            space = {name: search.space.get(name, {}) for name in (loss, "training")}
            found[" ".join((loss, *labels))] = {"dataset": dataset, **shown, "space": space}
    return found


# The result as tables of text and as CSV.

MANY = 20
"""With more pairs, only those that differ are shown."""


def campaign_tables(campaign: Campaign, result: CampaignResult, settings: Sequence[str]) -> list[TextTable]:
    """Return the tables of the data sets, choices, folds, quoted numbers, tournaments, curves, differences and trends.

    ``settings`` are the settings of the command line.
    """
    tables = data_set_tables(campaign, result, settings)
    if Role.TUNED in campaign.config.table.roles:
        tables.append(_chosen(campaign, result))
    if result.folds:
        tables.append(folds_table(result.folds))
    tables += quoted_tables(campaign.config)
    for role, found in result.tournaments.items():
        tables.append(_tournament(role, found, result.published_tournaments.get(role), result.data_axes))
    if result.anytime:
        tables.append(_anytime(campaign, result.anytime))
    if result.pairs or result.left_out:
        tables.append(_differences(result))
    if result.trends:
        tables.append(_trends(result.trends))
    return tables


def data_set_tables(campaign: Campaign, result: CampaignResult, settings: Sequence[str] = ()) -> list[TextTable]:
    """Return the cells as one table per data set, the notes below the last; one table if each row is a data set."""
    rows, axes = row_axes(campaign), data_axes(campaign)
    apart = by_data_set([axis for axis in axes if axis not in rows], result.cells)
    title = f"{result.name}: {result.study}"
    notes = list(_notes(campaign, result, settings))
    *_, last = apart
    return [
        campaign_table(campaign, cells, ", ".join(filter(None, (title, name))), notes if name == last else (), rows)
        for name, cells in apart.items()
    ]


def quoted_tables(config: CampaignConfig) -> list[TextTable]:
    """Return published numbers without a counterpart of ours, in the units of the paper."""
    return [
        TextTable(
            title=f"Printed, {quoted.source}",
            header=("", *quoted.metrics),
            rows=tuple((name, *map(_printed, quoted.metrics, values)) for name, values in quoted.rows.items()),
            labels=1,
        )
        for quoted in config.quoted
    ]


def _printed(metric: str, value: float | None) -> str:
    return NOTHING if value is None else f"{value:.{digits(metric)}f}"


def campaign_csv(result: CampaignResult) -> str:
    """Return one cell per line, with its values as measured: bounded metrics from 0 to 1."""
    text = io.StringIO()
    numbers = ("mean", "std", "published", "seeds")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*result.cells[0].coordinates, *numbers))
    for cell in result.cells:
        writer.writerow((*cell.coordinates.values(), cell.mean, cell.std, cell.published, cell.seeds))
    return text.getvalue()


def _notes(campaign: Campaign, result: CampaignResult, settings: Sequence[str]) -> Iterator[str]:
    metrics = campaign.config.table.metrics
    in_percent = [unit(measured_metric(campaign, metric)) > 1 for metric in metrics]
    as_measured = "" if all(in_percent) else " (distances and user-defined metrics as measured)"
    units = f"per cent{as_measured}, " if any(in_percent) else ""
    folds = " and folds" if any(member.config.split.folds for member in campaign.members) else ""
    yield f"{units}mean ± sample deviation over training seeds{folds}"
    if VALIDATION in metrics:
        objective = campaign.members[0].config.objective
        yield (
            f"{VALIDATION}: {objective} of the confirmation: fresh seeds on the validation classes or, where these are "
            "few, on two halves of the training classes"
        )
    for published in campaign.config.published:
        yield from published.notes
    if settings:
        yield f"set: {', '.join(settings)}"
    yield from training_told(result)
    yield from optimism_sentences(result.optimism)
    spent = result.epochs
    yield f"epochs: {spent.search:,} searching, {spent.confirm:,} confirming, {spent.final:,} for the test"
    yield from result.openings.values()
    yield from result.warnings


def training_told(result: CampaignResult) -> Iterator[str]:
    """Yield for each row tested against the untrained network whether training helped."""
    for pair in filter(is_against_baseline, result.pairs):
        yield training_sentence(pair, pair.names[0])


def _chosen(campaign: Campaign, result: CampaignResult) -> TextTable:
    choices = campaign.config.published_choices
    printed = {key: parameters(params) for section in choices for key, params in section.cells.items()}
    rows = [
        (search, loss, parameters(params), printed.get(" ".join((loss, *result.searches[search].values())), NOTHING))
        for search, losses in result.chosen.items()
        for loss, params in losses.items()
    ]
    header = ("search", LOSS, "hyperparameters", "published")
    columns = len(header) if printed else len(header) - 1
    return TextTable(
        title="Chosen",
        header=header[:columns],
        rows=tuple(row[:columns] for row in rows),
        labels=2,
        prose=tuple(range(2, columns)),
        notes=tuple(told.replace("in brackets", "published") for section in choices for told in section.notes),
    )


def folds_table(folds: Sequence[FoldModel]) -> TextTable:
    """Return a table with a row per fold: its best value on its validation classes, and the model's test metrics."""
    objectives, metrics = list(dict.fromkeys(model.objective for model in folds)), list(folds[0].test)
    named: dict[str, Callable[[FoldModel], str]] = {
        "search": lambda model: model.search,
        "configuration": lambda model: model.role.value,
        "training": lambda model: str(model.training),
    }
    varying = {name: of for name, of in named.items() if len({of(model) for model in folds}) > 1}
    return TextTable(
        title="Folds",
        header=(LOSS, *varying, "fold", VALIDATION, *metrics),
        rows=tuple(
            (
                model.loss,
                *(of(model) for of in varying.values()),
                str(model.fold),
                in_unit(model.objective, model.validation),
                *(in_unit(metric, model.test[metric]) for metric in metrics),
            )
            for model in folds
        ),
        labels=len(varying) + 2,
        notes=(f"{VALIDATION}: {' or '.join(objectives)} of the best epoch on the classes that the fold leaves out",),
    )


def _tournament(role: Role, found: Tournament, published: Tournament | None, axes: Sequence[str]) -> TextTable:
    printed = {standing.loss: standing for standing in published.standings} if published else {}
    return TextTable(
        title=f"Tournament{over_data_sets(found, axes)}, {role}",
        header=(LOSS, *RANKS),
        rows=tuple(
            (standing.loss, *ranks_beside(standing, printed.get(standing.loss))) for standing in found.standings
        ),
        labels=1,
        notes=(_worth(found), *((RANKS_BESIDE,) if printed else ())),
    )


def over_data_sets(found: Tournament, axes: Sequence[str]) -> str:
    """Return the number of data sets, for the title of a tournament over the data sets along ``axes``."""
    return f" over {found.settings} data sets" if axes else ""


def _worth(found: Tournament) -> str:
    """Return a sentence on the significance of the ranking."""
    if found.p is None or found.critical_difference is None:
        count = f"{found.settings} setting{'s' * (found.settings != 1)}, {len(found.standings)} losses"
        return f"{count}: too few to test the ranks, or all of them tie"
    if found.p > LEVEL:
        return f"{NO_DIFFERENCE} between the ranks of the losses (Friedman's p {found.p:.3f}): the order may be chance"
    return (
        f"Friedman's p {found.p:.3f}; losses differ if their mean ranks are {found.critical_difference:.2f} or more "
        "apart (Nemenyi, 5 % for all pairs)"
    )


def _anytime(campaign: Campaign, curves: Sequence[CampaignCurve]) -> TextTable:
    objective = campaign.members[0].config.objective
    named = [(f"{curve.way}/{curve.loss}", curve) for curve in curves]
    table = anytime_table(objective, named, lambda value: in_unit(objective, value))
    axes = search_axes(campaign)
    others = [axis for axis, labels in campaign.config.vary.items() if axis not in axes and len(labels) > 1]
    return replace(table, notes=(*table.notes, *(f"mean over {axis}" for axis in others)))


def _differences(result: CampaignResult) -> TextTable:
    pairs = result.pairs
    shown = pairs if len(pairs) <= MANY else [pair for pair in pairs if pair.differ or pair.same]
    count = f"{sum(pair.differ for pair in pairs)} of {len(pairs)}"
    return TextTable(
        title="Differences on the test classes",
        header=DIFFERENCES,
        rows=tuple(difference(pair) for pair in shown),
        labels=1,
        notes=(
            *([f"significant differences of {pairs[0].metric}: {count} pairs; {PAIRED}"] if pairs else []),
            *result.left_out,
        ),
    )


DIFFERENCES = ("pair", "difference", "95 % interval", "p (corrected)", "")


def difference(pair: CampaignPair) -> tuple[str, ...]:
    """Return the cells of a pair under the header :data:`DIFFERENCES`."""
    return (
        " − ".join(pair.names),
        in_unit(pair.metric, pair.difference, "+"),
        interval_in_unit(pair.metric, pair.ci95),
        p_value(pair.p_corrected),
        verdict(pair),
    )


def _trends(found: Sequence[Trend]) -> TextTable:
    same = sum(not trend.differ for trend in found)
    return TextTable(
        title="Trends on the test classes",
        header=("along", "change", "95 % interval", "p (corrected)", ""),
        rows=tuple(_trend(trend) for trend in found),
        labels=1,
        notes=(
            "change of a straight line from the first label to the last; intervals and p are corrected for the trends "
            "of one test set (Bonferroni)",
            *([f"no significant change in {same} of {len(found)} trends"] if same else []),
        ),
    )


def _trend(trend: Trend) -> tuple[str, ...]:
    ends = interval_in_unit(trend.metric, trend.ci95)
    name = f"{' '.join(trend.coordinates.values())}: {trend.axis} {trend.labels[0]} to {trend.labels[-1]}"
    word = "" if not trend.differ else "rises" if trend.change > 0 else "falls"
    return name, in_unit(trend.metric, trend.change, "+"), ends, p_value(trend.p_corrected), word

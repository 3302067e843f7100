"""The result of a campaign: one number per row and metric, and the differences of its rows."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from search.difference import Family, RowKey
from search.records.campaign import LOSS, VALIDATION, Campaign, CampaignConfig
from search.records.records import Records
from search.records.runs import CampaignFolder
from search.results.comparison import (
    chosen_after_opening,
    openings_sentence,
    summary_of,
    training_sentences,
    unlike_sentences,
)
from search.results.pairs import Pair, pairs_of
from search.results.rows import Result, Row, Shown
from search.results.summary import Summary
from search.stages import BASELINES, UNTRAINED, Role, Stage
from spaces.space import Value
from trainables.common.errors import InvalidInput
from trainables.common.files import reading

if TYPE_CHECKING:
    import pandas


ROLE, METRIC = "configuration", "metric"
"""The coordinates of a cell in addition to its loss and its labels."""


class Cell(Result):
    """One number of the table.

    Attributes:
        coordinates: loss, label on each axis, configuration and metric.
        measured: the metric of the values; for ``validation`` the objective.
        values: values of the trained models, as measured; empty if nothing finished.
        seeds: number of seeds; 0 for a network without training.
        mean: mean of ``values``; ``std`` is their sample deviation.
    """

    coordinates: Mapping[str, str]
    measured: str
    values: tuple[float, ...] = ()
    seeds: int = 0
    mean: float | None = None
    std: float | None = None


class CampaignResult(Shown, Result):
    """The results of a campaign.

    Attributes:
        study: description of the campaign in words.
        searches: for each search, its label on each axis.
        data_axes: axes whose labels are data sets.
        cells: the numbers of the table.
        chosen: for each search and loss, the chosen hyperparameters.
        pairs: differences between the rows of a column.
        left_out: sentences on rows that could not be paired.
        folds: the numbers of the model of each fold of a cross-validation, with the coordinates ``training`` (of the
            seed, from 1) and ``fold``.
        epochs: numbers of epochs of all searches: ``search``, ``confirm``, and ``final`` for the test.
        openings: for the digest of each test set, a sentence on its openings.
        warnings: sentences on training with images of an opened test set, on rows that are not trained alike, on
            choices after the opening, and on axes that must not be chosen by.
    """

    name: str
    study: str
    searches: Mapping[str, Mapping[str, str]]
    data_axes: tuple[str, ...] = ()
    cells: tuple[Cell, ...]
    chosen: Mapping[str, Mapping[str, Mapping[str, Value]]]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    folds: tuple[Cell, ...]
    epochs: Mapping[str, int]
    openings: Mapping[str, str]
    warnings: tuple[str, ...]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a table with one line per cell: its coordinates, mean, deviation and seeds, all as measured."""
        import pandas

        return pandas.DataFrame(
            [{**cell.coordinates, "mean": cell.mean, "std": cell.std, "seeds": cell.seeds} for cell in self.cells]
        )


def stored_result(folder: CampaignFolder) -> CampaignResult:
    """Return the result of a campaign as it was written last."""
    if not folder.result.exists():
        raise InvalidInput(f"No campaign {folder.name!r} has a result in {folder.runs}; `holdout run` runs one.")
    with reading(folder.result, "`holdout run` with the campaign's file writes it again"):
        return CampaignResult.model_validate_json(folder.result.read_bytes())


# The rows of a campaign by their coordinates, and its cells: one number per row and metric.


def rows_of(campaign: Campaign) -> dict[RowKey, dict[str, str]]:
    """Return the coordinates of all rows: in each search the networks without training, then the configurations."""
    rows, labels = {}, campaign.labels
    for search in campaign.searches:
        names = [(name, Role.BASELINE) for name in BASELINES if search.model.is_pretrained]
        names += [(loss, Role(role)) for loss in search.loss_names for role in campaign.config.table.roles]
        for loss, role in names:
            key = RowKey(search=search.name, loss=loss, role=role)
            rows[key] = {LOSS: loss, **labels[search.name], ROLE: role.value}
    return rows


def tested_metrics(config: CampaignConfig) -> list[str]:
    """Return the metrics of the table that the test measures."""
    return [name for name in config.table.metrics if name != VALIDATION]


def measured(campaign: Campaign, summaries: Sequence[Summary]) -> Iterator[Cell]:
    """Yield all cells, from the summaries of the campaign's searches."""
    rows = {row.key: row for summary in summaries for row in summary.rows}
    objective = campaign.searches[0].objective
    for key, place in rows_of(campaign).items():
        for metric in campaign.config.table.metrics if key in rows else ():
            row, name = rows[key], objective if metric == VALIDATION else metric
            found = row.confirmed if metric == VALIDATION else (row.test or {}).get(metric)
            numbers = found.model_dump(include={"values", "seeds", "mean", "std"}) if found else {}
            yield Cell(coordinates={**place, METRIC: metric}, measured=name, **numbers)


def data_axes(campaign: Campaign) -> tuple[str, ...]:
    """Return the axes whose labels are data sets, or other versions of one."""
    axes, labels = [], campaign.labels
    for axis in campaign.config.vary:
        found: dict[tuple[str, ...], set[str]] = {}
        for search in campaign.searches:
            others = tuple(label for other, label in labels[search.name].items() if other != axis)
            found.setdefault(others, set()).add(search.dataset.model_dump_json(exclude={"cache"}))
        if any(len(data_sets) > 1 for data_sets in found.values()):
            axes.append(axis)
    return tuple(axes)


HYPERPARAMETERS = ("space", "training", "training_by_loss", "model")
"""The sections whose settings a search can choose by validation."""


def sweeps(config: CampaignConfig, data: Sequence[str]) -> Iterator[str]:
    """Yield a warning if the table shows test metrics of several values of hyperparameters."""
    axes = [
        axis
        for axis, labels in config.vary.items()
        if axis not in data
        and len(labels) > 1
        and any(path.split(".")[0] in HYPERPARAMETERS for of in labels.values() for path in of)
    ]
    if axes and tested_metrics(config):
        yield (
            f"not for choosing: {' and '.join(axes)} var{'y' if len(axes) > 1 else 'ies'} on the test classes, so "
            "taking the best means choosing by the test; a search chooses by validation"
        )


def campaign_result(
    campaign: Campaign, searches: Sequence[Records], of: Callable[[Records], Summary] = summary_of
) -> CampaignResult:
    """Return the result of a campaign, whose searches are in the order of its labels, from their summaries."""
    config, data, family = campaign.config, data_axes(campaign), campaign_family(campaign)
    summaries = [of(search) for search in searches]
    by_image_set: dict[str, list[Records]] = {}
    for search in searches:
        by_image_set.setdefault(search.image_set, []).append(search)
    rows = [row for summary in summaries for row in summary.rows]
    keys, wanted = _pairs(campaign)
    pairs: list[Pair] = []
    left_out: list[str] = []
    openings = {}
    for digest, sharing in by_image_set.items():
        of_set = [row for row in rows if row.search in {search.name for search in sharing}]
        found, missing = pairs_of(sharing, of_set, tested_metrics(config), keys, wanted, family.within)
        pairs += found
        left_out += missing
        names = {", ".join(f"{axis} {campaign.labels[search.name][axis]}" for axis in data) for search in sharing}
        openings[digest] = "".join(f"{name}: " for name in sorted(names) if name) + openings_sentence(sharing)
    return CampaignResult(
        name=campaign.name,
        study=config.study,
        searches=campaign.labels,
        data_axes=data,
        cells=tuple(measured(campaign, summaries)),
        chosen={
            summary.name: {loss: entry.chosen.params or {} for loss, entry in summary.losses.items() if entry.chosen}
            for summary in summaries
        },
        pairs=tuple(pairs),
        left_out=tuple(left_out),
        folds=tuple(itertools.chain.from_iterable(map(_folds, itertools.repeat(campaign), searches, summaries))),
        epochs={
            stage.trainings: sum(search.tally(loss, stage).epochs for search in searches for loss in search.losses)
            for stage in Stage
        },
        openings=openings,
        warnings=(
            *training_sentences(searches, rows),
            *_unlike_sentences(campaign, searches, rows),
            *chosen_after_opening(searches, family, [row.key for row in rows if row.test]),
            *sweeps(config, data),
        ),
    )


def _folds(campaign: Campaign, search: Records, summary: Summary) -> Iterator[Cell]:
    """Yield the numbers of each fold's model in the first opening, as in the thesis's Table 13; none without folds."""
    scores = [score for opening in search.openings[:1] for score in opening.scores]
    places = rows_of(campaign)
    for row in summary.rows if scores else ():
        if row.role is Role.BASELINE or row.key not in places:
            continue
        models = [model for model in scores if (model.loss, model.source_trial) == (row.loss, row.number)]
        trained = {
            (made["source_trial"], made["seed"], made.get("fold")): trial.value
            for trial in search.trials(row.loss, Stage.TEST)
            for made in [trial.user_attrs]
        }
        seeds = list(dict.fromkeys(model.seed for model in models))
        for model in models:
            place = {**places[row.key], "training": str(seeds.index(model.seed) + 1), "fold": str(model.fold)}
            validation = {VALIDATION: trained[row.number, model.seed, model.fold]}
            for metric, value in {**validation, **model.metrics}.items() if model.fold is not None else ():
                if value is not None and metric in (VALIDATION, *tested_metrics(campaign.config)):
                    name = search.config.objective if metric == VALIDATION else metric
                    place[METRIC] = metric
                    yield Cell(coordinates={**place}, measured=name, values=(value,), seeds=1, mean=value)


def _unlike_sentences(campaign: Campaign, searches: Sequence[Records], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each column of the table whose ``rows`` differ in the network or its images."""
    by_key, by_name = {row.key: row for row in rows}, {search.name: search for search in searches}
    by_column: dict[tuple[str, str], list[Row]] = {}
    for key, column in _columns(campaign).items():
        by_column.setdefault((by_name[key.search].image_set, column), []).append(by_key[key])
    for of_column in by_column.values():
        yield from unlike_sentences([by_name[name] for name in {row.search for row in of_column}], of_column)


# The layout of its table.


def row_axes(config: CampaignConfig, data: Sequence[str]) -> list[str]:
    """Return the coordinates that name the rows of one data set's table; all rows of the file if they are data sets."""
    return [row for row in config.table.rows if row not in data] or [*config.table.rows]


def columns_of(config: CampaignConfig, places: Iterable[Mapping[str, str]], rows: Sequence[str]) -> list[str]:
    """Return the coordinates of ``places`` that name the columns: those that are not ``rows`` and vary within a row."""
    by_row: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for place in places:
        by_row.setdefault(tuple(place[row] for row in rows), []).append(place)
    keys = [key for key in (LOSS, *config.vary, ROLE, METRIC) if key not in rows]
    return [key for key in keys if any(len({place.get(key) for place in same}) > 1 for same in by_row.values())]


def joined(place: Mapping[str, str], axes: Iterable[str]) -> str:
    return " ".join(place[axis] for axis in axes)


# Pairs of rows on the test classes.


def campaign_family(campaign: Campaign) -> Family:
    """Return the rows, pairs and metrics of the table, which are frozen with the choices."""
    metrics, within = tested_metrics(campaign.config), campaign.searches[0].final.within
    return Family.of(metrics, rows_of(campaign), _pairs(campaign)[1], within)


def _columns(campaign: Campaign) -> dict[RowKey, str]:
    """Return the column of each configuration, by its labels alone."""
    places = {key: place for key, place in rows_of(campaign).items() if key.role is not Role.BASELINE}
    of_one_role = ({**place, ROLE: ""} for place in places.values())
    columns = columns_of(campaign.config, of_one_role, row_axes(campaign.config, data_axes(campaign)))
    return {key: joined(place, columns) for key, place in places.items()}


def _pairs(campaign: Campaign) -> tuple[list[RowKey], list[tuple[RowKey, RowKey]]]:
    """Return the compared rows, and all pairs of a column, and of a row with the untrained network of its search.

    They are the tuned rows if the table has both roles.
    """
    role = Role.TUNED if Role.TUNED in campaign.config.table.roles else Role.DEFAULT
    untrained = {key.search: key for key in rows_of(campaign) if key.role is Role.BASELINE and key.loss == UNTRAINED}
    columns = {key: column for key, column in _columns(campaign).items() if key.role is role}
    by_column: dict[str, list[RowKey]] = {}
    for key, column in columns.items():
        by_column.setdefault(column, []).append(key)
    pairs = [pair for keys in by_column.values() for pair in itertools.combinations(keys, 2)]
    pairs += ((key, untrained[key.search]) for key in columns if key.search in untrained)
    return [*columns, *untrained.values()], pairs

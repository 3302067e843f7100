"""A campaign's result: its types, the coordinates of its rows, and its cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from search.config.campaign import LOSS, VALIDATION, Campaign, CampaignConfig, Member
from search.difference import RowKey
from search.report.formats import interval
from search.report.results import Pair, Summary
from search.report.rows import Result, Shown
from search.stages import BASELINES, Role
from search.text_table import NOTHING
from spaces.space import Value
from trainables.metrics.table import is_bounded

if TYPE_CHECKING:
    import pandas

# The types of ``campaign.json``.


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


class CampaignResult(Shown):
    """The results of a campaign.

    Attributes:
        name: name of the campaign.
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


# Units: tables print per cent, as papers do, except for metrics that may leave 0 to 1.


def unit(metric: str) -> float:
    """Return the factor of a metric in a table."""
    return 100.0 if is_bounded(metric) else 1.0


def _digits(metric: str) -> int:
    return 2 if is_bounded(metric) else 3


def in_unit(metric: str, value: float | None, sign: str = "") -> str:
    """Return a value of ``metric`` as tables print it; ``sign="+"`` for a difference."""
    return NOTHING if value is None else f"{unit(metric) * value:{sign}.{_digits(metric)}f}"


def interval_in_unit(metric: str, ends: tuple[float, float]) -> str:
    """Return an interval of ``metric`` as tables print it."""
    return interval(ends, scale=unit(metric), digits=_digits(metric))


def cell_text(cell: Cell | None) -> str:
    if cell is None or cell.mean is None:
        return NOTHING
    deviation = "" if cell.std is None else f" ± {in_unit(cell.measured, cell.std)}"
    return in_unit(cell.measured, cell.mean) + deviation


# The rows of a campaign by their coordinates, and its cells: one number per row and metric.

ROLE, METRIC = "configuration", "metric"
"""The coordinates of a cell in addition to its loss and its labels."""

Coordinates = Mapping[RowKey, Mapping[str, str]]
"""The loss and the labels of each row, and its configuration."""


def labels_of(campaign: Campaign, member: Member) -> dict[str, str]:
    """Return the label of a search on each axis."""
    return dict(zip(campaign.config.vary, member.labels, strict=True))


def rows_of(campaign: Campaign) -> dict[RowKey, dict[str, str]]:
    """Return the coordinates of all rows: in each search the networks without training, then the configurations."""
    rows = {}
    for member in campaign.members:
        names = [(name, Role.BASELINE) for name in BASELINES if member.config.model.is_pretrained]
        names += [(loss, Role(role)) for loss in member.config.loss_names for role in campaign.config.table.roles]
        for loss, role in names:
            key = RowKey(search=member.config.name, loss=loss, role=role)
            rows[key] = {LOSS: loss, **labels_of(campaign, member), ROLE: role.value}
    return rows


def tested_metrics(config: CampaignConfig) -> list[str]:
    """Return the metrics of the table that the test measures."""
    return [name for name in config.table.metrics if name != VALIDATION]


def measured(campaign: Campaign, summaries: Sequence[Summary]) -> Iterator[Cell]:
    """Yield all cells, from the summaries of the campaign's searches."""
    rows = {row.key: row for summary in summaries for row in summary.rows}
    objective = campaign.members[0].config.objective
    for key, place in rows_of(campaign).items():
        for metric in campaign.config.table.metrics if key in rows else ():
            row, name = rows[key], objective if metric == VALIDATION else metric
            found = row.confirmed if metric == VALIDATION else (row.test or {}).get(metric)
            numbers = found.model_dump(include={"values", "seeds", "mean", "std"}) if found else {}
            yield Cell(coordinates={**place, METRIC: metric}, measured=name, **numbers)


# The axes of data sets, and the columns of a table.


def data_axes(campaign: Campaign) -> tuple[str, ...]:
    """Return the axes whose labels are data sets, or other versions of one."""
    return tuple(axis for position, axis in enumerate(campaign.config.vary) if _differs(campaign, position))


def _differs(campaign: Campaign, position: int) -> bool:
    found: dict[tuple[str, ...], set[str]] = {}
    for member in campaign.members:
        others = (*member.labels[:position], *member.labels[position + 1 :])
        found.setdefault(others, set()).add(member.config.dataset.model_dump_json(exclude={"cache"}))
    return any(len(values) > 1 for values in found.values())


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
    """Return the labels of ``place`` on ``axes``."""
    return " ".join(place[axis] for axis in axes)


# Sweeps on the test classes: axes of hyperparameters among which no validation chooses.

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

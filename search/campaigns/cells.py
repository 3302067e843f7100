"""A campaign's result: its types, cells and table."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from search.config.campaign import LOSS, VALIDATION, Campaign
from search.config.search_config import SearchConfig
from search.report.compared import ComparedCurve, Pair
from search.report.formats import interval
from search.report.loss_results import LossSummary
from search.report.results import Summary
from search.report.rows import Result, Row
from search.report.shown import Shown
from search.report.statistics import Tournament
from search.report.text_table import NOTHING, TextTable, best_of
from search.stages import Role
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
        mean: mean of ``values``.
        std: sample deviation of ``values``.
        published: the paper's number in the same unit.
    """

    coordinates: Mapping[str, str]
    measured: str
    values: tuple[float, ...]
    seeds: int
    mean: float | None
    std: float | None
    published: float | None


class Optimism(Result):
    """The mean ``objective`` of ``count`` configurations after each stage, from 0 to 1.

    ``search``, ``confirmed`` and ``final`` (the trainings for the test) are on the validation classes, ``test`` on the
    test classes, and ``test_small`` on test galleries with as many classes as validation. A stage that a configuration
    lacks is None.
    """

    objective: str
    count: int
    search: float | None
    confirmed: float | None
    final: float | None
    test_small: float | None
    test: float | None


class CampaignPair(Pair):
    """Two rows of the table with their ``names`` in it."""

    names: tuple[str, str]


class Trend(Result):
    """The trend of ``metric`` along an ``axis`` of numbers.

    Attributes:
        axis: name of the axis.
        labels: the numbers, in their order.
        coordinates: coordinates that the rows share.
        metric: the metric.
        change: difference between the ends of a straight line through the means of the labels in their order.
        ci95: its 95 % interval, which holds for all trends of one test set at once.
        p: its p-value, alone.
        p_corrected: ``p`` times the number of trends of its test set (Bonferroni), at most 1.
        differ: True if the trend is significant.
    """

    axis: str
    labels: tuple[str, ...]
    coordinates: Mapping[str, str]
    metric: str
    change: float
    ci95: tuple[float, float]
    p: float
    p_corrected: float
    differ: bool


class FoldModel(Result):
    """The model of one fold of a search's cross-validation.

    Attributes:
        search: name of the search.
        loss: name of the loss.
        role: role of the configuration.
        training: number of the seed, from 1.
        fold: number of the fold, from 1.
        objective: the objective of the search.
        validation: objective of the best epoch on the classes that the fold leaves out.
        test: the table's metrics on the test classes.
    """

    search: str
    loss: str
    role: Role
    training: int
    fold: int
    objective: str
    validation: float | None
    test: Mapping[str, float]


class CampaignCurve(ComparedCurve):
    """The curve of one ``way`` to search, named by its labels on the axes."""

    way: str


class CampaignEpochs(Result):
    """Numbers of epochs of all searches: searching, confirming, and training for the test."""

    search: int
    confirm: int
    final: int


class CampaignResult(Shown):
    """The results of a campaign.

    Attributes:
        name: name of the campaign.
        study: description of the campaign in words.
        searches: for each search, its label on each axis.
        data_axes: axes whose labels are data sets; the tournament is then over data sets.
        cells: the numbers of the table.
        chosen: for each search and loss, the chosen hyperparameters.
        tournaments: rankings of the losses by role.
        published_tournaments: the same rankings of the published numbers.
        optimism: mean objective after each stage by role.
        pairs: differences between the rows of a column.
        trends: trends along the axes of numbers.
        left_out: sentences on rows that could not be paired.
        folds: the models of cross-validations.
        anytime: anytime curves, if the searches search in different ways.
        epochs: numbers of epochs.
        openings: for the digest of each test set, a sentence on its openings.
        warnings: sentences on training with images of an opened test set, on rows that are not trained alike, on
            choices after the opening, on axes that must not be chosen by, and on published trainings with more classes.
    """

    name: str
    study: str
    searches: Mapping[str, Mapping[str, str]]
    data_axes: tuple[str, ...] = ()
    cells: tuple[Cell, ...]
    chosen: Mapping[str, Mapping[str, Mapping[str, Value]]]
    tournaments: Mapping[Role, Tournament]
    published_tournaments: Mapping[Role, Tournament]
    optimism: Mapping[Role, Optimism]
    pairs: tuple[CampaignPair, ...]
    trends: tuple[Trend, ...]
    left_out: tuple[str, ...]
    folds: tuple[FoldModel, ...]
    anytime: tuple[CampaignCurve, ...]
    epochs: CampaignEpochs
    openings: Mapping[str, str]
    warnings: tuple[str, ...]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a table with one line per cell: its labels, the mean, deviation, published number and seeds."""
        import pandas

        numbers = ("mean", "std", "published", "seeds")
        return pandas.DataFrame(
            [{**cell.coordinates, **{name: getattr(cell, name) for name in numbers}} for cell in self.cells]
        )


# The cells: one number per search, loss, role and metric, with the paper's number.

ROLE, METRIC = "configuration", "metric"
"""The coordinates of a cell in addition to its loss and its labels."""


def unit(metric: str) -> float:
    """Return the factor of a metric in a table: 100 for per cent, as papers print; 1 if it may leave 0 to 1."""
    return 100.0 if is_bounded(metric) else 1.0


def digits(metric: str) -> int:
    """Return the number of decimals of ``metric`` in a table."""
    return 2 if unit(metric) > 1 else 3


def in_unit(metric: str, value: float | None, sign: str = "") -> str:
    """Return a value of ``metric`` as tables print it; ``sign="+"`` for a difference."""
    return NOTHING if value is None else f"{unit(metric) * value:{sign}.{digits(metric)}f}"


def interval_in_unit(metric: str, ends: tuple[float, float]) -> str:
    """Return an interval of ``metric`` as tables print it."""
    return interval(ends, scale=unit(metric), digits=digits(metric))


def measured(campaign: Campaign, summaries: Sequence[Summary]) -> list[Cell]:
    """Return all cells, from the summaries of the campaign's searches."""
    return [
        cell
        for member, summary in zip(campaign.members, summaries, strict=True)
        for cell in (
            *_baseline_cells(campaign, member.labels, summary),
            *(
                _cell(campaign, member.labels, loss, role, metric, summary.losses[loss])
                for loss in member.config.loss_names
                for role in campaign.config.table.roles
                for metric in campaign.config.table.metrics
            ),
        )
    ]


def _baseline_cells(campaign: Campaign, labels: Sequence[str], summary: Summary) -> Iterator[Cell]:
    """Yield the cells of the networks without training; there are no published numbers of them."""
    for row in summary.rows:
        for metric in campaign.config.table.metrics if row.role is Role.BASELINE else ():
            coordinates = _coordinates(campaign, labels, row.loss, row.role, metric)
            yield Cell(coordinates=coordinates, published=None, **_measured(campaign, row, metric))


def all_coordinates(campaign: Campaign) -> list[dict[str, str]]:
    """Return the coordinates of all cells, from the campaign file alone."""
    return [
        _coordinates(campaign, member.labels, loss, role, metric)
        for member in campaign.members
        for loss in member.config.loss_names
        for role in campaign.config.table.roles
        for metric in campaign.config.table.metrics
    ]


def _coordinates(campaign: Campaign, labels: Sequence[str], loss: str, role: Role, metric: str) -> dict[str, str]:
    return {
        LOSS: loss,
        **dict(zip(campaign.config.vary, labels, strict=True)),
        ROLE: role.value,
        METRIC: metric,
    }


def _cell(campaign: Campaign, labels: Sequence[str], loss: str, role: Role, metric: str, entry: LossSummary) -> Cell:
    return Cell(
        coordinates=_coordinates(campaign, labels, loss, role, metric),
        **_measured(campaign, entry.default if role is Role.DEFAULT else entry.tuned, metric),
        published=next(_published(campaign, " ".join((loss, *labels)), role, metric), None),
    )


def measured_metric(campaign: Campaign, metric: str) -> str:
    """Return the metric of a column's values: the objective for ``validation``, else the column's own."""
    return campaign.members[0].config.objective if metric == VALIDATION else metric


def _measured(campaign: Campaign, row: Row, metric: str) -> dict[str, Any]:
    """Return the fields of a cell that ``row`` determines."""
    measured = measured_metric(campaign, metric)
    found = row.confirmed if metric == VALIDATION else (row.test or {}).get(metric)
    if found is None:
        return {"measured": measured, "values": (), "seeds": 0, "mean": None, "std": None}
    return {"measured": measured, "values": found.values, "seeds": found.seeds, "mean": found.mean, "std": found.std}


def _published(campaign: Campaign, key: str, role: Role, metric: str) -> Iterator[float]:
    for published in campaign.config.published:
        if published.role is role and metric in published.metrics and key in published.cells:
            number = published.cells[key][published.metrics.index(metric)]
            yield round(number / unit(measured_metric(campaign, metric)), 6)


# Axes along which the searches differ in one respect, such as their data set.


def axes_of(campaign: Campaign, of: Callable[[SearchConfig], Hashable]) -> list[str]:
    """Return the axes along which searches with otherwise equal labels differ in ``of``."""
    return [axis for position, axis in enumerate(campaign.config.vary) if _differs(campaign, position, of)]


def _differs(campaign: Campaign, position: int, of: Callable[[SearchConfig], Hashable]) -> bool:
    found: dict[tuple[str, ...], set[Hashable]] = {}
    for member in campaign.members:
        others = (*member.labels[:position], *member.labels[position + 1 :])
        found.setdefault(others, set()).add(of(member.config))
    return any(len(values) > 1 for values in found.values())


def data_axes(campaign: Campaign) -> list[str]:
    """Return the axes whose labels are data sets, or other versions of one."""
    return axes_of(campaign, lambda config: config.dataset.model_dump_json(exclude={"cache"}))


def row_axes(campaign: Campaign) -> list[str]:
    """Return the coordinates that name the rows of one data set's table; all rows of the file if they are data sets."""
    rows, apart = campaign.config.table.rows, data_axes(campaign)
    return [row for row in rows if row not in apart] or [*rows]


def by_data_set(axes: Sequence[str], cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each data set by its labels on ``axes``; all under an empty name without axes."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(" ".join(cell.coordinates[axis] for axis in axes), []).append(cell)
    return found


# Sweeps on the test classes: axes of hyperparameters among which no validation chooses.

HYPERPARAMETERS = ("space", "training", "training_by_loss", "model")
"""The sections whose settings a search can choose by validation."""


def sweeps(campaign: Campaign) -> Iterator[str]:
    """Yield a warning if the table shows test metrics of several values of hyperparameters."""
    table, apart = campaign.config.table, data_axes(campaign)
    axes = [
        axis
        for axis, labels in campaign.config.vary.items()
        if axis not in apart
        and len(labels) > 1
        and any(path.split(".")[0] in HYPERPARAMETERS for of in labels.values() for path in of)
    ]
    if axes and any(metric != VALIDATION for metric in table.metrics):
        yield (
            f"not for choosing: {' and '.join(axes)} var{'y' if len(axes) > 1 else 'ies'} on the test classes, so "
            "taking the best means choosing by the test; a search chooses by validation"
        )


def fewer_classes(campaign: Campaign) -> Iterator[str]:
    """Yield a sentence if the published trainings had all training classes, and ours leave some out to validate."""
    on_part = [member.config.split for member in campaign.members if member.config.final.train_on == "train"]
    if not on_part or not any(section.cells and section.train_on == "all" for section in campaign.config.published):
        return
    shares = {1 - 1 / split.folds if split.folds else split.ratio for split in on_part}
    share = f"{100 * shares.pop():.3g} %" if len(shares) == 1 else "a part"
    yield (
        f"published numbers are of trainings on all training classes, ours of trainings on {share} of them; with "
        "base.final.train_on=all the final trainings use all"
    )


# The table, with the rows and columns of the campaign file.

Key = tuple[str, ...]
"""The values of the coordinates of a row, column or cell."""
Cells = Mapping[Key, Cell]


def columns_of(campaign: Campaign, cells: Iterable[Mapping[str, str]], rows: Sequence[str] | None = None) -> list[str]:
    """Return the coordinates that name the columns: those that are not ``rows`` and vary within a row.

    ``cells`` has the coordinates of each cell; None: the rows of the campaign file.
    """
    rows = campaign.config.table.rows if rows is None else rows
    found: dict[tuple[str, ...], set[str]] = {}
    keys = [key for key in (LOSS, *campaign.config.vary, ROLE, METRIC) if key not in rows]
    for cell in cells:
        for key in keys:
            found.setdefault((key, *(cell[row] for row in rows)), set()).add(cell[key])
    return [key for key in keys if any(len(values) > 1 for (first, *_), values in found.items() if first == key)]


def campaign_table(
    campaign: Campaign, cells: Sequence[Cell], title: str, notes: Sequence[str], rows: Sequence[str] | None = None
) -> TextTable:
    """Return ``cells`` in rows and columns, with the paper's numbers in brackets; None: the campaign file's rows."""
    rows = campaign.config.table.rows if rows is None else rows
    placed = [(place, cell) for cell in cells for place in _places(campaign, cell)]
    columns = columns_of(campaign, [place for place, _ in placed], rows)
    values = {key: list(dict.fromkeys(place[key] for place, _ in placed)) for key in (*rows, *columns)}
    found = {tuple(place[key] for key in (*rows, *columns)): cell for place, cell in placed}
    across = list(product(*(values[key] for key in columns)))
    others = [key for key in cells[0].coordinates if key not in (*rows, *columns)]
    fixed = {key: {place[key] for place, _ in placed} for key in others}
    down = [
        row for row in product(*(values[key] for key in rows)) if any((*row, *column) in found for column in across)
    ]
    same = ", ".join(f"{key} {next(iter(only))}" for key, only in fixed.items() if len(only) == 1)
    return TextTable(
        title=title,
        header=(*rows, *("\n".join(column) or cells[0].coordinates[METRIC] for column in across)),
        rows=tuple((*row, *(cell_text(found.get((*row, *column))) for column in across)) for row in down),
        labels=len(rows),
        notes=(*((same,) if same else ()), *notes),
        best=frozenset(_best(found, down, across, len(rows)) if _has_a_best(campaign, rows) else ()),
    )


def _places(campaign: Campaign, cell: Cell) -> list[Mapping[str, str]]:
    """Return the coordinates at which the table shows a cell.

    A network without training has no configuration; its number stands in the column of each.
    """
    if cell.coordinates[ROLE] != Role.BASELINE:
        return [cell.coordinates]
    return [{**cell.coordinates, ROLE: role.value} for role in campaign.config.table.roles]


def _has_a_best(campaign: Campaign, rows: Sequence[str]) -> bool:
    """Return True if the rows of a column share a data set and may be ranked by the test."""
    return not set(rows) & set(data_axes(campaign)) and not list(sweeps(campaign))


def _best(found: Cells, down: Sequence[Key], across: Sequence[Key], labels: int) -> Iterator[tuple[int, int]]:
    """Yield the cells with the highest mean of each column of a test metric."""
    for position, column in enumerate(across):
        cells = [found.get((*row, *column)) for row in down]
        metrics = {cell.coordinates[METRIC] for cell in cells if cell}
        if len(metrics) == 1 and VALIDATION not in metrics:
            yield from best_of(labels + position, metrics.pop(), [cell.mean if cell else None for cell in cells])


def cell_text(cell: Cell | None) -> str:
    """Return mean and deviation, with the paper's number in brackets."""
    if cell is None or cell.mean is None:
        return NOTHING
    text = in_unit(cell.measured, cell.mean)
    if cell.std is not None:
        text += f" ± {in_unit(cell.measured, cell.std)}"
    return text if cell.published is None else f"{text} ({in_unit(cell.measured, cell.published)})"

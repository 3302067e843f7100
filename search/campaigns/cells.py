"""A campaign's result: its types, its cells and its table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from search.config.campaign import LOSS, VALIDATION, Campaign
from search.report.results import ComparedCurve, LossSummary, Pair, Result, SeedStatistics, Summary
from search.report.statistics import Tournament
from search.report.text_table import NOTHING, TextTable, best_of
from search.stages import Role
from spaces.space import Value
from trainables.metrics.table import DISTANCES, split_subset

# What a campaign came to, as ``campaign.json`` holds it.


class Cell(Result):
    """One number of the table: ``coordinates`` names its loss, its label on each axis, its configuration and metric.

    ``values`` are those of the trained models, in our unit (0 to 1), of so many ``seeds``; empty where nothing
    finished. ``mean`` is their mean, ``std`` their sample deviation. ``published`` is the paper's number in the same
    unit.
    """

    coordinates: Mapping[str, str]
    values: tuple[float, ...]
    seeds: int
    mean: float | None
    std: float | None
    published: float | None


class Optimism(Result):
    """The mean ``objective`` of ``count`` configurations after each stage, of 0 to 1.

    ``search``, ``confirmed`` and ``final`` (the trainings for the test) are on the validation classes, ``test`` on the
    test classes, and ``test_small`` among as many of them as validate. A stage that one of the configurations lacks is
    None.
    """

    objective: str
    count: int
    search: float | None
    confirmed: float | None
    final: float | None
    test_small: float | None
    test: float | None


class CampaignPair(Pair):
    """Two rows of the table, which are called ``names`` there."""

    names: tuple[str, str]


class Trend(Result):
    """Whether ``metric`` rises along an ``axis`` of numbers, of the rows that ``coordinates`` names.

    ``change`` is that of a straight line through the means of the labels in their order, from the first to the last,
    with its 95 % interval; ``p_holm`` is corrected for the trends of one test set. ``differ`` says whether it is there.
    """

    axis: str
    labels: tuple[str, ...]
    coordinates: Mapping[str, str]
    metric: str
    change: float
    ci95: tuple[float, float]
    p: float
    p_holm: float
    differ: bool


class FoldModel(Result):
    """The model of one ``fold``, from 1, of a search's cross-validation; ``training`` numbers the seeds from 1.

    ``validation`` is the ``objective`` of its best epoch on the classes that the fold leaves out, and ``test`` the
    metrics of the table on the test classes, both in our unit.
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
    """The curve of one ``way`` to search, named by its labels."""

    way: str


class CampaignEpochs(Result):
    """How many epochs all searches together trained: searching, confirming, and for the test."""

    search: int
    confirm: int
    final: int


class CampaignResult(Result):
    """What the campaign ``name`` came to; ``study`` says in words what it is about.

    ``searches`` maps each search to its label on each axis, ``chosen`` each search and loss to the hyperparameters
    that were chosen. ``tournaments`` ranks the losses and ``optimism`` follows the objective, by role. ``trends``
    are along the axes of numbers, ``pairs`` between the rows of a column. ``left_out`` says which rows could not be
    paired. ``folds`` has each model of a cross-validation. ``openings`` maps the digest of each test set to how often
    it was opened. ``warnings`` says what was trained on images of an opened test set or chosen after opening, and which
    axes are nothing to choose by.
    """

    name: str
    study: str
    searches: Mapping[str, Mapping[str, str]]
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


# What a campaign measured: one number a search, loss, role and metric, with the paper's beside it.

ROLE, METRIC = "configuration", "metric"
"""The coordinates of a cell beside its loss and its labels."""


def unit(metric: str) -> float:
    """What a table multiplies a metric by: papers print per cent, and distances as they are."""
    return 1.0 if split_subset(metric)[0] in DISTANCES else 100.0


def digits(metric: str) -> int:
    """How many digits after the point a table prints of ``metric``, in that unit."""
    return 2 if unit(metric) > 1 else 3


def measured(campaign: Campaign, summaries: Sequence[Summary]) -> list[Cell]:
    """All cells, from the summaries of the campaign's searches."""
    return [
        _cell(campaign, member.labels, loss, role, metric, summary.losses[loss])
        for member, summary in zip(campaign.members, summaries, strict=True)
        for loss in member.config.loss_names
        for role in campaign.config.table.roles
        for metric in campaign.config.table.metrics
    ]


def all_coordinates(campaign: Campaign) -> list[dict[str, str]]:
    """The coordinates of all cells, which the campaign file alone says."""
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
    found = _statistics(entry, role, metric)
    return Cell(
        coordinates=_coordinates(campaign, labels, loss, role, metric),
        values=found.values if found else (),
        seeds=found.seeds if found else 0,
        mean=found.mean if found else None,
        std=found.std if found else None,
        published=next(_published(campaign, " ".join((loss, *labels)), role, metric), None),
    )


def _statistics(entry: LossSummary, role: Role, metric: str) -> SeedStatistics | None:
    found = entry.of_role(role)
    return found.confirmed if metric == VALIDATION else (found.test or {}).get(metric)


def _published(campaign: Campaign, key: str, role: Role, metric: str) -> Iterator[float]:
    for published in campaign.config.published:
        if published.role is role and metric in published.metrics and key in published.cells:
            number = published.cells[key][published.metrics.index(metric)]
            yield round(number / unit(metric), 6)


# Axes of a campaign that are a sweep on the test classes: hyperparameters that no validation chose between.

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


# The campaign's table, in the shape that its file asks for.

Key = tuple[str, ...]
"""The values of a row's, a column's or a cell's coordinates."""
Cells = Mapping[Key, Cell]


def columns_of(campaign: Campaign, cells: Iterable[Mapping[str, str]]) -> list[str]:
    """What tells the columns of ``cells``, given by their coordinates, apart: what is no row and differs within one."""
    rows = campaign.config.table.rows
    found: dict[tuple[str, ...], set[str]] = {}
    keys = [key for key in (LOSS, *campaign.config.vary, ROLE, METRIC) if key not in rows]
    for cell in cells:
        for key in keys:
            found.setdefault((key, *(cell[row] for row in rows)), set()).add(cell[key])
    return [key for key in keys if any(len(values) > 1 for (first, *_), values in found.items() if first == key)]


def campaign_table(campaign: Campaign, cells: Sequence[Cell], title: str, notes: Sequence[str]) -> TextTable:
    """``cells`` in rows and columns; the paper's numbers stand in brackets."""
    rows, columns = campaign.config.table.rows, columns_of(campaign, [cell.coordinates for cell in cells])
    values = {key: list(dict.fromkeys(cell.coordinates[key] for cell in cells)) for key in (*rows, *columns)}
    found = {tuple(cell.coordinates[key] for key in (*rows, *columns)): cell for cell in cells}
    across = list(product(*(values[key] for key in columns)))
    others = [key for key in cells[0].coordinates if key not in (*rows, *columns)]
    fixed = {key: {cell.coordinates[key] for cell in cells} for key in others}
    down = [
        row for row in product(*(values[key] for key in rows)) if any((*row, *column) in found for column in across)
    ]
    same = ", ".join(f"{key} {next(iter(only))}" for key, only in fixed.items() if len(only) == 1)
    return TextTable(
        title=title,
        header=(*rows, *("\n".join(column) or cells[0].coordinates[METRIC] for column in across)),
        rows=tuple((*row, *(_text(found.get((*row, *column))) for column in across)) for row in down),
        labels=len(rows),
        notes=(*((same,) if same else ()), *notes),
        best=frozenset(_best(found, down, across, len(rows)) if _has_a_best(campaign) else ()),
    )


def _has_a_best(campaign: Campaign) -> bool:
    """Whether a column's rows are of one data set, and nothing that the test should not choose."""
    axes = [labels for axis, labels in campaign.config.vary.items() if axis in campaign.config.table.rows]
    paths = [path for labels in axes for settings in labels.values() for path in settings]
    return not any(path.split(".")[0] == "dataset" for path in paths) and not list(sweeps(campaign))


def _best(found: Cells, down: Sequence[Key], across: Sequence[Key], labels: int) -> Iterator[tuple[int, int]]:
    """The highest mean of each column of a test metric."""
    for position, column in enumerate(across):
        cells = [found.get((*row, *column)) for row in down]
        metrics = {cell.coordinates[METRIC] for cell in cells if cell}
        if len(metrics) == 1 and VALIDATION not in metrics:
            yield from best_of(labels + position, metrics.pop(), [cell.mean if cell else None for cell in cells])


def _text(cell: Cell | None) -> str:
    if cell is None or cell.mean is None:
        return NOTHING
    metric = cell.coordinates[METRIC]
    scale, shown = unit(metric), digits(metric)
    text = f"{cell.mean * scale:.{shown}f}"
    if cell.std is not None:
        text += f" ± {cell.std * scale:.{shown}f}"
    return text if cell.published is None else f"{text} ({cell.published * scale:.{shown}f})"

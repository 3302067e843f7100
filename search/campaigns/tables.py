"""A campaign's result: its types, and its cells as tables of text and as CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from search.config.campaign import LOSS, VALIDATION, CampaignConfig
from search.difference import RowKey
from search.report.formats import interval, p_value, parameters, verdict
from search.report.pairs import METHOD
from search.report.results import Pair
from search.report.rows import Result, Shown
from search.stages import Role
from search.text_table import NOTHING, TextTable
from spaces.space import Value
from trainables.metrics.table import is_bounded

if TYPE_CHECKING:
    import pandas

# The types of ``campaign.json``.


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


# Units: tables print per cent, as papers do, except for metrics that may leave 0 to 1.


def unit(metric: str) -> float:
    """Return the factor of a metric in a table."""
    return 100.0 if is_bounded(metric) else 1.0


def _digits(metric: str) -> int:
    return 2 if is_bounded(metric) else 3


def in_unit(metric: str, value: float | None, sign: str = "") -> str:
    """Return a value of ``metric`` as tables print it; ``sign="+"`` for a difference."""
    return NOTHING if value is None else f"{unit(metric) * value:{sign}.{_digits(metric)}f}"


def cell_text(cell: Cell | None) -> str:
    if cell is None or cell.mean is None:
        return NOTHING
    deviation = f" ± {in_unit(cell.measured, cell.std)}" if cell.std else ""
    return in_unit(cell.measured, cell.mean) + deviation


# Tables.


def campaign_csv(result: CampaignResult) -> str:
    """Return one cell per line, as measured: bounded metrics from 0 to 1."""
    return str(result.to_frame().to_csv(index=False, lineterminator="\n"))


def campaign_tables(config: CampaignConfig, result: CampaignResult, settings: Sequence[str] = ()) -> list[TextTable]:
    """Return all tables; ``settings`` are those of the command line."""
    return [*data_set_tables(config, result, settings), *other_tables(config, result)]


def other_tables(config: CampaignConfig, result: CampaignResult) -> Iterator[TextTable]:
    """Yield the tables of the choices, folds and differences, as far as there are any."""
    if Role.TUNED in config.table.roles:
        yield _chosen(result)
    if result.folds:
        yield _folds(config, result.folds)
    if result.pairs or result.left_out:
        yield _differences(config, result)


# The cells of each data set, with the rows of the campaign file.


def data_set_tables(config: CampaignConfig, result: CampaignResult, settings: Sequence[str] = ()) -> list[TextTable]:
    """Return the cells as one table per data set, the notes below the last; one table if each row is a data set."""
    rows = row_axes(config, result.data_axes)
    apart = [axis for axis in result.data_axes if axis not in rows]
    by_data: dict[str, list[Cell]] = {}
    for cell in result.cells:
        by_data.setdefault(joined(cell.coordinates, apart), []).append(cell)
    notes = list(_notes(config, result, settings))
    title, last = f"{result.name}: {result.study}", [*by_data][-1]
    return [
        campaign_table(
            config, result.data_axes, cells, ", ".join(filter(None, (title, name))), notes if name == last else ()
        )
        for name, cells in by_data.items()
    ]


def campaign_table(
    config: CampaignConfig, data: Sequence[str], cells: Sequence[Cell], title: str, notes: Sequence[str]
) -> TextTable:
    """Return ``cells`` in rows and columns; the axes ``data`` are those of data sets.

    A network without training has no configuration; its number is in the column of each.
    """
    rows, roles = row_axes(config, data), [role.value for role in config.table.roles]
    places = [
        ({**cell.coordinates, ROLE: role}, cell)
        for cell in cells
        for role in (roles if cell.coordinates[ROLE] == Role.BASELINE else [cell.coordinates[ROLE]])
    ]
    columns = columns_of(config, [place for place, _ in places], rows) or [METRIC]
    others = {key: {place[key] for place, _ in places} for key in places[0][0] if key not in (*rows, *columns)}
    same = ", ".join(f"{key} {labels.pop()}" for key, labels in others.items() if len(labels) == 1)
    return cell_table(places, rows, columns, title, [*([same] if same else []), *notes])


def cell_table(
    places: Sequence[tuple[Mapping[str, str], Cell]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    notes: Sequence[str] = (),
) -> TextTable:
    """Return cells at their ``places`` in a table."""
    import pandas

    frame = pandas.DataFrame([place for place, _ in places], columns=[*rows, *columns])
    for key in frame:  # labels stay in the order of the file
        frame[key] = pandas.Categorical(frame[key], frame[key].unique())
    frame["cell"] = [cell for _, cell in places]
    wide = frame.pivot(index=[*rows], columns=[*columns], values="cell")
    down, across = (list(axis.to_frame().itertuples(index=False, name=None)) for axis in (wide.index, wide.columns))
    cells = [[cell if isinstance(cell, Cell) else None for cell in row] for row in wide.to_numpy()]
    return TextTable(
        title=title,
        header=(*rows, *map("\n".join, across)),
        rows=tuple((*names, *map(cell_text, of_row)) for names, of_row in zip(down, cells, strict=True)),
        labels=len(rows),
        notes=tuple(notes),
    )


def _notes(config: CampaignConfig, result: CampaignResult, settings: Sequence[str]) -> Iterator[str]:
    of_column = {cell.coordinates[METRIC]: cell.measured for cell in result.cells}
    in_percent = [unit(metric) > 1 for metric in of_column.values()]
    as_measured = "" if all(in_percent) else " (distances and user-defined metrics as measured)"
    units = f"per cent{as_measured}, " if any(in_percent) else ""
    yield f"{units}mean ± sample deviation over training seeds{' and folds' if result.folds else ''}"
    if VALIDATION in of_column:
        yield (
            f"{VALIDATION}: {of_column[VALIDATION]} of the confirmation: fresh seeds on the validation classes or, "
            "where these are few, on two halves of the training classes"
        )
    if settings:
        yield f"set: {', '.join(settings)}"
    spent = result.epochs
    yield f"epochs: {spent['search']:,} searching, {spent['confirm']:,} confirming, {spent['final']:,} for the test"
    yield from result.openings.values()
    yield from result.warnings


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


def row_name(config: CampaignConfig, result: CampaignResult, key: RowKey) -> str:
    """Return the name of a row: its loss and its labels, as far as the campaign has several."""
    losses = {cell.coordinates[LOSS] for cell in result.cells if cell.coordinates[ROLE] != Role.BASELINE}
    labels = [result.searches[key.search][axis] for axis, labels in config.vary.items() if len(labels) > 1]
    return " ".join([key.loss, *labels] if losses != {key.loss} or not labels else labels)


# The other tables.


def _chosen(result: CampaignResult) -> TextTable:
    return TextTable(
        title="Chosen",
        header=("search", LOSS, "hyperparameters"),
        rows=tuple(
            (search, loss, parameters(params))
            for search, losses in result.chosen.items()
            for loss, params in losses.items()
        ),
        labels=2,
        prose=(2,),
    )


def _folds(config: CampaignConfig, folds: Sequence[Cell]) -> TextTable:
    """Return a table with a row per fold: its best value on its validation classes, and the model's test metrics."""
    objectives = dict.fromkeys(cell.measured for cell in folds if cell.coordinates[METRIC] == VALIDATION)
    note = f"{VALIDATION}: {' or '.join(objectives)} of the best epoch on the classes that the fold leaves out"
    several = [key for key in (*config.vary, ROLE, "training") if len({cell.coordinates[key] for cell in folds}) > 1]
    places = [(cell.coordinates, cell) for cell in folds]
    return cell_table(places, [LOSS, *several, "fold"], [METRIC], "Folds", [note])


MANY = 20
"""With more pairs, only those that differ are shown."""

PAIRED = (
    "all pairs of rows of a column, and each row with the untrained network of its search if there is one; "
    f"{METHOD} the pairs of one test set"
)


def _differences(config: CampaignConfig, result: CampaignResult) -> TextTable:
    pairs = result.pairs
    count = f"{sum(pair.differ for pair in pairs)} of {len(pairs)}"
    return TextTable(
        title="Differences on the test classes",
        header=("pair", "difference", "95 % interval", "p (corrected)", ""),
        rows=tuple(
            (
                " − ".join(row_name(config, result, key) for key in (pair.first, pair.second)),
                in_unit(pair.metric, pair.difference, "+"),
                interval(pair.ci95, scale=unit(pair.metric), digits=_digits(pair.metric)),
                p_value(pair.p_corrected),
                verdict(pair),
            )
            for pair in pairs
            if len(pairs) <= MANY or pair.differ or pair.same
        ),
        notes=(
            *([f"significant differences of {pairs[0].metric}: {count} pairs; {PAIRED}"] if pairs else []),
            *result.left_out,
        ),
    )

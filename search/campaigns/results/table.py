"""The campaign's table, in the shape that its file asks for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import METRIC, ROLE, digits, unit
from search.campaigns.results.sweeps import sweeps
from search.campaigns.results.types import Cell
from search.report.tables.text_table import NOTHING, TextTable, best_of

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

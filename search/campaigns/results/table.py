"""The campaign's table, in the shape that its file asks for."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS
from search.campaigns.results.cells import METRIC, ROLE, unit
from search.campaigns.results.types import Cell
from search.report.tables.text_table import NOTHING, TextTable


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
    same = ", ".join(f"{key} {next(iter(only))}" for key, only in fixed.items() if len(only) == 1)
    return TextTable(
        title=title,
        header=(*rows, *("\n".join(column) or cells[0].coordinates[METRIC] for column in across)),
        rows=tuple(
            (*row, *(_text(found.get((*row, *column))) for column in across))
            for row in product(*(values[key] for key in rows))
            if any((*row, *column) in found for column in across)
        ),
        labels=len(rows),
        notes=(*((same,) if same else ()), *notes),
    )


def _text(cell: Cell | None) -> str:
    if cell is None or cell.mean is None:
        return NOTHING
    scale = unit(cell.coordinates[METRIC])
    digits = 2 if scale > 1 else 3
    text = f"{cell.mean * scale:.{digits}f}"
    if cell.std is not None:
        text += f" ± {cell.std * scale:.{digits}f}"
    return text if cell.published is None else f"{text} ({cell.published * scale:.{digits}f})"

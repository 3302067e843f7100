"""The cells of a campaign's table as numbers behind a picture."""

from collections.abc import Sequence

from search.campaigns.results.cells import METRIC, unit
from search.campaigns.results.types import Cell
from search.report.tables.text_table import NOTHING, TextTable


def cell_table(cells: Sequence[Cell]) -> TextTable:
    """A row a cell: its coordinates, our mean and deviation, and the paper's number."""
    keys = list(cells[0].coordinates) if cells else []
    return TextTable(
        title="",
        header=(*keys, "mean", "deviation", "seeds", "published"),
        rows=tuple(
            (
                *(cell.coordinates[key] for key in keys),
                *(_number(value, cell) for value in (cell.mean, cell.std)),
                str(cell.seeds),
                _number(cell.published, cell),
            )
            for cell in cells
        ),
        labels=len(keys),
        notes=(),
    )


def _number(value: float | None, cell: Cell) -> str:
    scale = unit(cell.coordinates[METRIC])
    return NOTHING if value is None else f"{scale * value:.{2 if scale > 1 else 3}f}"

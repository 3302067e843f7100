"""The campaign's table, in the shape that its file asks for."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from search.campaigns.campaign import Campaign
from search.campaigns.cells import METRIC, ROLE, Cell, unit
from search.campaigns.config import LOSS

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table as text: ``heads`` name the leading columns of each row, ``columns`` the others; ``fixed`` says what is
    the same in all cells."""

    heads: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[str]]]
    fixed: str


def campaign_grid(campaign: Campaign, cells: Sequence[Cell]) -> Grid:
    """``cells`` in rows and columns; the paper's numbers stand in brackets."""
    rows = campaign.config.table.rows
    values = {
        key: list(dict.fromkeys(cell.place[key] for cell in cells))
        for key in (LOSS, *campaign.config.vary, ROLE, METRIC)
    }
    varying = [key for key in values if key not in rows and len(values[key]) > 1]
    found = {tuple(cell.place[key] for key in (*rows, *varying)): cell for cell in cells}
    columns = list(product(*(values[key] for key in varying)))
    return Grid(
        heads=rows,
        columns=["\n".join(column) or values[METRIC][0] for column in columns],
        rows=[
            (row, [_text(found.get((*row, *column))) for column in columns])
            for row in product(*(values[key] for key in rows))
            if any((*row, *column) in found for column in columns)
        ],
        fixed=", ".join(f"{key} {values[key][0]}" for key in values if key not in rows and len(values[key]) == 1),
    )


def _text(cell: Cell | None) -> str:
    if cell is None or cell.mean is None:
        return NOTHING
    scale = unit(cell.place[METRIC])
    digits = 2 if scale > 1 else 3
    text = f"{cell.mean * scale:.{digits}f}"
    if cell.std is not None:
        text += f" ± {cell.std * scale:.{digits}f}"
    return text if cell.published is None else f"{text} ({cell.published * scale:.{digits}f})"

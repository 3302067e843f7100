"""``holdout losses``: every loss, with its paper, equation, defaults and ranges."""

from typing import TYPE_CHECKING, Any

from search.cli.options import Json
from search.cli.output import show

if TYPE_CHECKING:
    from rich.console import RenderableType


def losses(as_json: Json = False) -> None:
    """Every loss, with its paper, equation, defaults and ranges."""
    from search.config.catalogue import described_losses

    listed = described_losses()
    show("" if as_json else _rendered(listed), listed, as_json)


def _rendered(listed: list[dict[str, Any]]) -> "RenderableType":
    from rich.console import Group

    return Group(*(part for entry in listed for part in _loss(entry)))


def _loss(entry: dict[str, Any]) -> tuple["RenderableType", ...]:
    """One loss for people. Equations are full of brackets, which rich would take for its own: hence Text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    for width in (18, 18, 34, None):
        table.add_column(min_width=width, overflow="fold")
    for name, parameter in entry["hyperparameters"].items():
        default = "default " + str(parameter["default"])
        table.add_row(name, default, Text(parameter["range"]), Text(parameter["source"], style="dim"))
    heading = Text.assemble((entry["name"], "bold"), "  ", (entry["paper"], "dim"))
    return heading, Text("  " + entry["equation"]), table, Text()

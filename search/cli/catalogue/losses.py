"""``holdout losses``: every loss, with its paper, equation, defaults and ranges."""

from typing import TYPE_CHECKING

from search.cli.options import Json
from search.cli.output import show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from search.config.parts.catalogue import LossDescription


def losses(as_json: Json = False) -> None:
    """Every loss, with its paper, equation, defaults and ranges."""
    from dataclasses import asdict

    from search.config.parts.catalogue import described_losses

    listed = described_losses()
    show("" if as_json else _rendered(listed), [asdict(loss) for loss in listed], as_json)


def _rendered(listed: list["LossDescription"]) -> "RenderableType":
    from rich.console import Group

    return Group(*(part for loss in listed for part in _loss(loss)))


def _loss(loss: "LossDescription") -> tuple["RenderableType", ...]:
    """One loss for people. Equations are full of brackets, which rich would take for its own: hence Text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    for width in (18, 18, 34, None):
        table.add_column(min_width=width, overflow="fold")
    for name, parameter in loss.hyperparameters.items():
        default = f"default {parameter.default}"
        table.add_row(name, default, Text(parameter.range), Text(parameter.source, style="dim"))
    heading = Text.assemble((loss.name, "bold"), "  ", (loss.paper, "dim"))
    return heading, Text("  " + loss.equation), table, Text()

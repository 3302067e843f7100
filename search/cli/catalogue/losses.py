"""``holdout losses``: every loss, with its paper, equation, defaults and ranges."""

from typing import TYPE_CHECKING

from search.cli.options import Json
from search.cli.output import rendered, show

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
    from rich.text import Text

    from search.report.tables.text_table import TextTable

    table = TextTable(
        title="",
        header=("hyperparameter", "default", "range", "source"),
        rows=tuple(
            (name, str(parameter.default), parameter.range, parameter.source)
            for name, parameter in loss.hyperparameters.items()
        ),
        labels=1,
        prose=(2, 3),
    )
    heading = Text.assemble((loss.name, "bold"), "  ", (loss.paper, "dim"))
    return heading, Text(loss.equation), rendered([table])

"""Commands that list what can be searched: `losses`, `backbones`, `papers`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import Json
from search.cli.output import Tables, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from search.config.parts import LossDescription
    from search.config.recipes import Paper
    from search.report.text_table import TextTable


# holdout losses


def losses(as_json: Json = False) -> None:
    """List the losses, with their papers, equations, defaults and ranges."""
    from dataclasses import asdict

    from search.config.parts import described_losses

    listed = described_losses()
    show([asdict(loss) for loss in listed], as_json, lambda: _rendered_losses(listed))


def _rendered_losses(listed: list["LossDescription"]) -> "RenderableType":
    from rich.console import Group

    return Group(*(part for loss in listed for part in _loss(loss)))


def _loss(loss: "LossDescription") -> tuple["RenderableType", ...]:
    """Render a loss. Its equation is a ``Text``, since rich reads brackets in a string as markup."""
    from rich.text import Text

    from search.report.text_table import TextTable

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
    return heading, Text(loss.equation), Tables([table])


# holdout backbones

OTHERS = (
    "torchvision:NAME is any classification network of torchvision (torchvision:convnext_tiny), "
    "timm:NAME any network of timm (timm:resnet18.tv_in1k), after `pip install timm`. "
    "`holdout backbones torchvision:convnext_tiny` describes one."
)


def backbones(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A network; by default all of them.")] = None,
    as_json: Json = False,
) -> None:
    """List the networks, with their features, their input, and the location of their ImageNet weights."""
    from trainables.models.backbones import BACKBONES

    entries = [_described(entry) for entry in (BACKBONES if name is None else [name])]
    show(entries, as_json, lambda: _rendered_backbones(entries, "" if name else OTHERS))


def _rendered_backbones(entries: list[dict[str, Any]], note: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    return Group(*(part for entry in entries for part in _entry(entry)), Text(note))


def _described(name: str) -> dict[str, Any]:
    from trainables.models.backbones import backbone
    from trainables.models.weights import weights_path

    row = backbone(name)
    imagenet = None
    if row.imagenet is not None:
        kept = weights_path(row.imagenet)
        imagenet = {"address": row.imagenet.address, "file": str(kept), "present": kept.is_file()}
    return {
        "name": name,
        "summary": row.summary,
        "features": row.features,
        "mean": list(row.mean),
        "scale": list(row.scale),
        "channels": "BGR" if row.bgr else "RGB",
        "imagenet": imagenet,
    }


def _entry(entry: dict[str, Any]) -> tuple["RenderableType", ...]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    mean, scale = (" ".join(f"{value:.3f}" for value in entry[key]) for key in ("mean", "scale"))
    order = ", then reordered to BGR" if entry["channels"] == "BGR" else ""
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(min_width=9)
    table.add_column(overflow="fold")
    table.add_row("features", str(entry["features"]))
    table.add_row("input", f"RGB in 0 … 1, minus {mean}, divided by {scale}{order}")
    imagenet = entry["imagenet"]
    if imagenet is None:
        table.add_row("imagenet", "no published weights")
    else:
        table.add_row("imagenet", Text(imagenet["address"]))
        table.add_row("", Text(f"{'present:' if imagenet['present'] else 'save as'} {imagenet['file']}"))
    heading = Text.assemble((entry["name"], "bold"), "  ", entry["summary"])
    return heading, Padding(table, (0, 0, 1, 1))


# holdout papers

LEGEND = "small: minutes on two cores; full: the paper's setting, where DIR is the folder of its data set"


def papers(
    name: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="A paper; by default all of them.")] = None,
    as_json: Json = False,
) -> None:
    """List the tables and figures of the papers, with the commands that reproduce them."""
    from search.config.recipes import papers as shipped_papers

    found = shipped_papers(name)
    listed = [
        {"paper": paper.paper, "name": key, **item.model_dump()} for key, paper in found.items() for item in paper.items
    ]
    show(listed, as_json, lambda: Tables([table for key, paper in found.items() for table in _tables(key, paper)]))


def _tables(name: str, paper: "Paper") -> Iterator["TextTable"]:
    """Yield the items with a command, those without one yet, and those that need none."""
    from search.report.text_table import TextTable

    title = f"{name}: {paper.paper}"
    yield TextTable(
        title=title,
        header=("", "shows", "small", "full", "found in"),
        rows=tuple(
            (entry.item, entry.title, _lines(entry.small), _lines(entry.full), entry.shown)
            for entry in paper.items
            if entry.small and entry.full and entry.shown
        ),
        labels=1,
        prose=(1, 4),
        notes=(LEGEND,),
    )
    yield TextTable(
        title=f"{title}: no command yet",
        header=("", "shows", "missing"),
        rows=tuple((entry.item, entry.title, entry.missing) for entry in paper.items if entry.missing),
        labels=1,
        prose=(1, 2),
    )
    yield TextTable(
        title=f"{title}: conceptual, without a command",
        header=("", "shows", "why"),
        rows=tuple((entry.item, entry.title, entry.conceptual) for entry in paper.items if entry.conceptual),
        labels=1,
        prose=(1, 2),
    )


def _lines(commands: str) -> str:
    """Return the commands on separate lines."""
    return commands.replace(" && ", " &&\n")

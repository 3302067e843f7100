"""``holdout backbones``: the networks, what they want of their input, and where their weights are."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import Json
from search.cli.output import show

if TYPE_CHECKING:
    from rich.console import RenderableType

OTHERS = (
    "torchvision:NAME is any classification network of torchvision (torchvision:convnext_tiny), "
    "timm:NAME any network of timm (timm:resnet18.tv_in1k), once `pip install timm` has brought it. "
    "`holdout backbones torchvision:convnext_tiny` describes one."
)


def backbones(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One network; all of them without it.")] = None,
    as_json: Json = False,
) -> None:
    """Every network: its features, its input, and where its ImageNet weights are."""
    from trainables.models.backbones import BACKBONES

    entries = [_described(entry) for entry in (BACKBONES if name is None else [name])]
    show("" if as_json else _rendered(entries, "" if name else OTHERS), entries, as_json)


def _rendered(entries: list[dict[str, Any]], note: str) -> "RenderableType":
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
    order = ", channels then reversed to BGR" if entry["channels"] == "BGR" else ""
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(min_width=9)
    table.add_column(overflow="fold")
    table.add_row("features", str(entry["features"]))
    table.add_row("input", f"RGB in 0 … 1 less {mean}, over {scale}{order}")
    imagenet = entry["imagenet"]
    if imagenet is None:
        table.add_row("imagenet", "no weights are published")
    else:
        table.add_row("imagenet", Text(imagenet["address"]))
        table.add_row("", Text(f"{'here in' if imagenet['present'] else 'to be put at'} {imagenet['file']}"))
    heading = Text.assemble((entry["name"], "bold"), "  ", entry["summary"])
    return heading, Padding(table, (0, 0, 1, 1))

"""Commands that list what can be searched, and check a part: `keys`, `losses`, `backbones`, `papers`, `check`."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from holdout.cli.options import Json
from holdout.cli.output import Tables, aligned, messages, show, shown_checks, stacked
from search.text_table import TextTable
from trainables.common.errors import InvalidInput

if TYPE_CHECKING:
    from search.config.keys import Key
    from search.config.parts import LossDescription
    from search.config.recipes import Paper


def keys(
    pattern: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key such as training.lr, part of a name, or search.*")
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="List all keys, not only those that most files set.")] = False,
    as_json: Json = False,
) -> None:
    """List the main keys of a search file, or explain one: type, default, range, what it does, and an example."""
    from search.config.keys import ESSENTIAL, SECTION, keys_of, matching
    from search.config.search_config import SearchConfig

    known = list(keys_of(SearchConfig))
    count = sum(key.type != SECTION for key in known)
    is_short = pattern is None and not whole
    listed = [key for key in known if key.name in ESSENTIAL] if is_short else matching(known, pattern or "*")
    show(
        [asdict(key) for key in listed],
        as_json,
        lambda: _main_keys(listed, count) if is_short else stacked(map(_key, listed)),
    )


def _main_keys(listed: list["Key"], count: int) -> RenderableType:
    table = TextTable(
        header=("key", "default", "what it does"),
        rows=tuple((key.name, "required" if key.default is None else key.default, key.sentence) for key in listed),
        prose=(1, 2),
        notes=(f"`holdout keys KEY` explains one, with its range and an example; `--all` lists all {count}.",),
    )
    return Tables([table])


def _key(key: "Key") -> tuple[RenderableType, ...]:
    default = "required" if key.default is None else f"default {key.default}" if key.default else ""
    facts = "; ".join(filter(None, (key.value, default)))
    lines = "\n".join((key.does, *([key.in_file] if key.example else [])))
    return Text.assemble((key.name, "bold"), "  ", (facts, "dim")), Padding(Text(lines), (0, 0, 1, 2), expand=False)


SOURCES = (
    "thesis: B. Psomas, Metric Learning: A Deep Dive, 2020. MPA: Saeki et al., Multi Proxy Anchor, 2023. PNP: Li et "
    "al., AAAI 2022. top-k: Lu et al., Sampling Wisely, ICCV 2019."
)


def losses(as_json: Json = False) -> None:
    """List the losses, with their papers, equations, defaults and ranges."""
    from search.config.parts import described_losses

    listed = described_losses()
    show([asdict(loss) for loss in listed], as_json, lambda: stacked([*map(_loss, listed), (SOURCES,)]))


def _loss(loss: "LossDescription") -> tuple[RenderableType, ...]:
    """Render a loss. Its equation is a ``Text``, since rich reads brackets in a string as markup."""
    table = TextTable(
        header=("hyperparameter", "default", "range", "source"),
        rows=tuple(
            (name, str(parameter.default), parameter.range, parameter.source)
            for name, parameter in loss.hyperparameters.items()
        ),
        prose=(2, 3),
    )
    heading = Text.assemble((loss.name, "bold"), "  ", (loss.paper, "dim"))
    return heading, Text(loss.equation), Tables([table])


OTHERS = (
    "torchvision:NAME is any classification network of torchvision (torchvision:convnext_tiny), "
    "timm:NAME any network of timm (timm:resnet18.tv_in1k), after `pip install timm`. "
    "`holdout backbones torchvision:convnext_tiny` describes one. "
    "`holdout backbones resnet50 --download` downloads its published weights. "
    "Besides these, model.weights takes any .safetensors or torch.save file that holds the same tensors, "
    "also inside a checkpoint or under a prefix."
)


def backbones(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A network; by default all of them.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download the weights of NAME, or the rest.")] = False,
    as_json: Json = False,
) -> None:
    """List the networks, with their features, their input, and the location of their ImageNet weights."""
    from trainables.models.backbones import BACKBONES, backbone

    if download:
        from rich.progress import wrap_file

        from trainables.models.weights import download as downloaded

        if name is None:
            raise InvalidInput("--download needs a network, as in `holdout backbones resnet50 --download`.")
        if (published := backbone(name).imagenet) is None:
            raise InvalidInput(
                f"{name} has no published weights to download; `holdout backbones` lists those with some."
            )
        downloaded(published, partial(wrap_file, description=published.file, console=messages()))
    entries = [_described(entry) for entry in (BACKBONES if name is None else [name])]
    show(entries, as_json, lambda: stacked([*map(_entry, entries), () if name else (OTHERS,)]))


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
        "tokens": row.tokens is not None,
        "imagenet": imagenet,
    }


def _entry(entry: dict[str, Any]) -> tuple[RenderableType, ...]:
    mean, scale = (" ".join(f"{value:.3f}" for value in entry[key]) for key in ("mean", "scale"))
    order = ", then reordered to BGR" if entry["channels"] == "BGR" else ""
    rows = [("features", str(entry["features"])), ("input", f"RGB in 0 … 1, minus {mean}, divided by {scale}{order}")]
    if entry["tokens"]:
        rows.append(("tokens", "of a class and of patches, for model.pooling cls, mean or cls_mean"))
    if imagenet := entry["imagenet"]:
        state = "present:" if imagenet["present"] else "add --download, or save as"
        rows += [("imagenet", imagenet["address"]), ("", f"{state} {imagenet['file']}")]
    else:
        rows.append(("imagenet", "no published weights"))
    heading = Text.assemble((entry["name"], "bold"), "  ", entry["summary"])
    return heading, Padding(aligned(rows), (0, 0, 1, 1))


LEGEND = "small: minutes on two cores; full: the paper's setting, where DIR is the folder of its data set"


def papers(
    name: Annotated[str | None, typer.Argument(metavar="PAPER", help="A paper; by default all of them.")] = None,
    as_json: Json = False,
) -> None:
    """List the tables and figures of the papers, with the commands that reproduce them."""
    from search.config.recipes import papers as shipped_papers

    found = shipped_papers(name)
    listed = [
        {"paper": paper.paper, "name": key, **item.model_dump()} for key, paper in found.items() for item in paper.items
    ]
    show(listed, as_json, lambda: Tables([table for key, paper in found.items() for table in _tables(key, paper)]))


def _tables(name: str, paper: "Paper") -> Iterator[TextTable]:
    """Yield the items with a command, and those that need none."""
    title = f"{name}: {paper.paper}"
    yield TextTable(
        title=title,
        header=("", "shows", "small", "full", "found in"),
        rows=tuple(
            (entry.item, entry.title, _lines(entry.small), _lines(entry.full), entry.shown)
            for entry in paper.items
            if entry.small and entry.full and entry.shown
        ),
        prose=(1, 4),
        notes=(LEGEND,),
    )
    yield TextTable(
        title=f"{title}: conceptual, without a command",
        header=("", "shows", "why"),
        rows=tuple((entry.item, entry.title, entry.conceptual) for entry in paper.items if entry.conceptual),
        prose=(1, 2),
    )


def _lines(commands: str) -> str:
    return commands.replace(" && ", " &&\n")


def check(
    part: Annotated[
        str,
        typer.Argument(metavar="PART", help="A name, or the import path of your own, such as mylab.losses:CircleLoss."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of the data set (also a trainable's)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the contract tests of a loss, data set, backbone, sampler, metric or trainable; exit code 1 if one fails."""
    from search.config.yaml_file import apply_settings
    from spaces.contract.check_part import check_part, kind_of

    kind = kind_of(part)
    options = apply_settings({}, settings or [])
    if options and kind not in ("dataset", "trainable"):
        raise InvalidInput(f"--set sets an option of a data set, but {part} is a {kind}; leave it out.")
    outcomes = shown_checks(check_part(part, options), as_json)
    ok = all(outcome.ok for outcome in outcomes)
    if as_json:
        show({"part": part, "kind": kind, "ok": ok, "checks": [*map(asdict, outcomes)]}, as_json, str)
    if not ok:
        raise typer.Exit(1)

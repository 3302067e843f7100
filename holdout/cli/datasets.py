"""Commands for data sets: `datasets`; `init`, which writes a first search file; `vault`, which holds test classes."""

import os
import sys
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdout.cli.options import Json
from holdout.cli.output import aligned, messages, say, show, stacked
from trainables.common.errors import Failure, InvalidInput

if TYPE_CHECKING:
    from trainables.data.dataset import Dataset
    from trainables.data.split import ClassSplit


INSPECT_S = 60
"""Time limit for looking at image files, in seconds."""
INDENT = (0, 0, 0, 2)


def datasets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A data set; by default all of them.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="A folder to check as the data set NAME.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of the data set.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Write all images as files, a folder for each class.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the data sets, with publisher and layout on disk; with --root, check a folder."""
    from search.config.parts import build_dataset, known_dataset
    from search.config.sections import SplitSection
    from search.config.yaml_file import apply_settings
    from trainables.data import DATASETS
    from trainables.data.dataset import similar_names
    from trainables.data.split import check_classes, split_dataset

    if root is None and not settings and to is None:
        entries = [_described(entry) for entry in (DATASETS if name is None else [known_dataset(name)])]
        show(entries, as_json, lambda: stacked(map(_entry, entries)))
        return
    if name is None:
        raise InvalidInput(
            "--root, --set and --to need the name of a data set, as in `holdout datasets cub200 --root DIR`."
        )
    options = apply_settings({} if root is None else {"root": str(root)}, settings or [])
    dataset = build_dataset(name, options)
    if to is not None and dataset.noun != "images":
        raise InvalidInput("--to: the data set has no images; leave it out.")
    classes, defaults = dataset.classes(), SplitSection()
    split = split_dataset(dataset, classes, ratio=defaults.ratio, seed=defaults.seed)
    check_classes(split, dataset, classes)
    counts = _counts(dataset, split)
    if to is not None:
        _write_images(dataset, to)
    _say_damage(dataset, split)
    say([similar_names(classes), dataset.left_out()], "yellow")
    show({"name": name, **counts}, as_json, lambda: _counted(name, counts, dataset.noun, split.ratio))


def _described(name: str) -> dict[str, Any]:
    from trainables.data import DATASETS

    dataset = DATASETS[name]
    return {
        "name": name,
        "summary": dataset.summary,
        "publisher": dataset.publisher,
        "layout": dataset.layout.splitlines(),
        "options": {
            option.name: {"default": option.default, "about": option.metadata["about"]}
            for option in fields(dataset)  # type: ignore[arg-type]  # every row is a dataclass
        },
    }


def _entry(entry: dict[str, Any]) -> tuple[RenderableType, ...]:
    """Render a data set, as ``Text`` since rich reads brackets in a string as markup."""
    options = []
    for name, option in entry["options"].items():
        default = "null" if option["default"] is None else str(option["default"]).lower()
        options.append((name, f"default {default}", Text(option["about"], style="dim")))
    return (
        Text.assemble((entry["name"], "bold"), "  ", entry["summary"]),
        Padding(Text(entry["publisher"], style="dim"), INDENT, expand=False),
        *(Padding(Text(line), INDENT, expand=False) for line in entry["layout"]),
        Padding(aligned(options), (0, 0, 0, 1), expand=False),
        Text(),
    )


def _say_damage(dataset: "Dataset", split: "ClassSplit") -> None:
    """Print which files look damaged by their headers; none is decoded, so test images are not seen."""
    from trainables.data.images import inspect

    classes = dataset.classes()
    for part, names in {"training": split.train + split.validation, "test": split.test}.items():
        keys = [key for name in names for key in classes[name]]
        found = inspect(dataset.damage, keys, seconds=INSPECT_S)
        say([found.sentence(f"{dataset.noun} of {part} classes")], "yellow")


def _write_images(dataset: "Dataset", folder: Path) -> None:
    """Write the images into a new ``folder``, with names of digits."""
    from PIL import Image

    if folder.exists():
        raise InvalidInput(f"--to {folder} exists already; name a folder that does not.")
    for name, keys in dataset.classes().items():
        (folder / name).mkdir(parents=True)
        for number, key in enumerate(keys):
            Image.fromarray(dataset.read(key)).save(folder / name / f"{number:04d}.png")
    say([f"Wrote the images to {folder}."])


def _counts(dataset: "Dataset", split: "ClassSplit") -> dict[str, Any]:
    classes = dataset.classes()
    parts = {
        "train_half": split.train + split.validation, "train": split.train, "validation": split.validation,
        "test": split.test,
    }  # fmt: skip
    counts = {
        part: {"classes": len(names), "images": sum(len(classes[name]) for name in names)}
        for part, names in parts.items()
    }
    return {"identity": split.identity, **counts}


def _counted(name: str, counts: dict[str, Any], noun: str, ratio: float) -> RenderableType:
    table = Table("part")
    for column in ("classes", noun):
        table.add_column(column, justify="right")
    rows = {
        "training half": "train_half",
        f"  training ({ratio:.0%})": "train",
        f"  validation ({1 - ratio:.0%})": "validation",
        "test half": "test",
    }
    for title, part in rows.items():
        table.add_row(title, *(f"{count:,}" for count in counts[part].values()))
    return Group(Text(f"{name}: {counts['identity']}"), table)


def init(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="A folder with one sub-folder of images per class, a CSV file that lists images, or a file of "
            "embeddings; by default the built-in glyphs.",
        ),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="The folder of the paths in a CSV file; by default that of the file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default NAME.yaml here."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A pretrained network, such as timm:NAME; for photographs resnet50."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file of its weights; by default those of ImageNet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a commented search file with sizes that fit your images or embeddings and this machine.

    A pretrained network, which photographs get unless --backbone is convnet, is frozen: a layer on it is trained.
    """
    from search.config import initial_file
    from search.driver.progress_view import phase
    from trainables.data.sets.glyphs import Glyphs
    from trainables.data.sets.manifest import is_manifest

    network = initial_file.pretrained(backbone, weights)
    # a library of networks may be, too: before the data is read
    is_missing = network is not None and network.is_missing
    if root is not None and (folder is None or not is_manifest(folder)):
        raise InvalidInput(f"--root {root} is for the paths of a CSV file, and there is no CSV file; leave it out.")
    frozen = None if backbone is None else network is not None
    with phase(messages(), "Reading the data …"):
        dataset = Glyphs() if folder is None else initial_file.dataset_at(folder, root)
        facts = initial_file.dataset_facts(dataset, frozen=frozen)
    if facts.features is not None and backbone is not None:
        raise InvalidInput(f"{folder} holds embeddings, which need no network; leave out --backbone and --weights.")
    path = output or Path(f"{initial_file.name_for(facts.root)}.yaml")
    initial_file.refuse_existing(path)
    if backbone is None and facts.of_photographs:
        network = initial_file.COMMON
        is_missing = network.is_missing
    with phase(messages(), "Choosing the settings …"):
        machine, loaded = initial_file.this_machine(), None
        sizes = initial_file.sizes_for(facts, machine, network)
        if network is not None and not is_missing and sizes.image_size:
            network, loaded = network.fitted(sizes.image_size, dataset, facts)
            sizes = initial_file.sizes_for(facts, machine, network)
    initial_file.write_initial_file(path, initial_file.initial_text(facts, machine, network))
    found = "\n".join(filter(None, (*facts.sentences(), loaded, machine.sentence)))
    parts = {"found": asdict(facts), "weights": loaded, "machine": asdict(machine), "sizes": asdict(sizes)}
    first = f"  holdout backbones {sizes.backbone} --download\n" if is_missing else ""
    wrote = f"{found}\nWrote {path}. Read it, then run:\n\n{first}  holdout run {path}"
    show({"file": str(path), **parts}, as_json, lambda: wrote)


def vault(
    action: Annotated[
        Literal["make", "answer", "verify"],
        typer.Argument(help="make: a vault of the data set DATA; answer: one request; verify: all openings again."),
    ],
    place: Annotated[Path, typer.Argument(metavar="DATA|DIR", help="The data set to divide, or the vault's folder.")],
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="The folder of the new vault.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="The data set in the folder DATA, such as cub200.")
    ] = None,
    openings: Annotated[int, typer.Option("--openings", min=1, help="How often the test may be opened.")] = 1,
    labels_only: Annotated[
        bool, typer.Option("--labels-only", help="Hand out the test items without labels, and score embeddings.")
    ] = False,
    class_values: Annotated[
        bool, typer.Option("--class-values/--no-class-values", help="Answer values by class, which intervals need.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", help="The split.seed of the searches.")] = 0,
) -> None:
    """Hold the test classes of a data set for others, and score their frozen models once."""
    if action == "answer":
        from search.vault.answer import ERRORS, answer

        reply = os.fdopen(os.dup(1), "wb")
        with suppress(OSError), (place / ERRORS).open("ab") as file:  # what a library prints may tell of test items
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        with reply:
            answer(place.resolve(), sys.stdin.buffer, reply)
        return
    if action == "verify":
        from search.vault.answer import problems_of

        if problems := list(problems_of(place.resolve())):
            raise Failure("\n".join(problems))
        verified = "Verified: every opening has its line and its answer, and its models give the same scores again."
        say([verified], "green")
        return
    from search.config.initial_file import dataset_at
    from search.config.parts import build_dataset
    from search.vault.held import LISTED, VECTORS_FILE, Policy, make_vault

    if to is None:
        raise InvalidInput("--to is missing: name the folder of the new vault.")
    if not place.exists():
        raise InvalidInput(f"{place} does not exist; give a folder of images, a CSV file or a file of embeddings.")
    source = dataset_at(place) if dataset is None else build_dataset(dataset, {"root": str(place)})
    to = to.resolve()
    policy = Policy(openings=openings, by_class=class_values, labels_only=labels_only)
    key = make_vault(source, to, policy, seed=seed)
    listed = LISTED if source.features() is None else VECTORS_FILE
    say(
        [
            f"The vault {key[:12]} is in {to}, which only you can read. Publish its key {key}.",
            f"Hand out {to}-training: `holdout init {to}-training/{listed}` writes the search file.",
            *([f"Hand out {to}-items, too: the test items without labels (final.vault_items)."] if labels_only else []),
            f"Nobody who searches may read {place}, which has the test classes, too.",
        ],
        "green",
    )

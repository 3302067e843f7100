"""Commands for models: `export`, `embed`, `index`, `query`, `register`."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import RUNS, BatchSize, Device, Images, Json, Model, Name, Runs, SkipUnreadable, TrustCode
from search.cli.output import rendered, say, show, show_line
from trainables.inference.index.description import IndexKind
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from search.report.text_table import TextTable
    from trainables.inference.index.image_index import Neighbour


# ``holdout export``: a search's chosen model as files.


def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where to; a folder that is not there yet.")],
    loss: Annotated[
        str | None,
        typer.Option(
            "--loss", help="Whose; without it, the loss with the highest confirmed mean on validation classes."
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write the chosen model with its card, and as torch.export program and ONNX, each checked on real images."""
    from search.driver.models import export as export_model, programs_table
    from search.plan.stored import stored_search

    found = export_model(stored_search(runs, name), loss, to)
    show(
        "" if as_json else rendered([programs_table(found.programs)]),
        {"folder": str(found.folder), "loss": found.loss, "programs": [asdict(entry) for entry in found.programs]},
        as_json,
    )
    say([f"The model of {found.loss} is in {found.folder}; its card is {found.folder / 'README.md'}."])


# ``holdout embed``: the embeddings of images as a file.


def embed(
    model: Model,
    images: Images,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="A .npz or .parquet file; one that is there is replaced.")
    ],
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Embed images with a trained model, as its test did; the embeddings, of length 1, and paths go to a file."""
    from search.cli.embedded_files import refuse_file, write_embeddings

    refuse_file(to)

    from search.cli.embedded_files import embedded_files  # torch, from here on
    from search.tracking import load_model
    from trainables.inference.images import found_images

    paths = found_images(images)
    loaded = load_model(model, device=device, trust_code=trust_code)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    write_embeddings(to, files.embeddings_ND, files.paths)
    count, dimensions = files.embeddings_ND.shape
    if as_json:
        show("", {"file": to, "model": loaded.address, **files.record()}, as_json)
    else:
        show_line(f"{to} holds {count:,} embeddings of {dimensions} dimensions.")


# ``holdout index``: images, to be found by similarity.


def index(
    model: Model,
    images: Images,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FOLDER", help="A new or empty folder; an index that is there is replaced."),
    ],
    kind: Annotated[
        IndexKind | None,
        typer.Option("--kind", help="How it is searched; exact up to a million images, and ivf above."),
    ] = None,
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Embed images with a trained model and write a faiss index of them, for `holdout query`."""
    from search.cli.embedded_files import refuse_unwritable
    from trainables.files import given_path
    from trainables.inference.index.description import refuse_other_folder

    refuse_other_folder(given_path(to))
    refuse_unwritable(to)

    from search.cli.embedded_files import embedded_files  # torch, from here on
    from search.tracking import load_model
    from trainables.inference.images import found_images
    from trainables.inference.index.image_index import ImageIndex
    from trainables.inference.index.structures import kind_for

    paths = found_images(images)
    kind_for(len(paths), kind)  # which can be refused before anything is embedded
    loaded = load_model(model, device=device, trust_code=trust_code)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    made = ImageIndex.of(files.embeddings_ND, files.paths, loaded, kind=kind)
    made.save(to)
    described = made.description
    if described.recall:
        say([described.recall.sentence()])
    if as_json:
        show("", {"folder": to, **files.record(), **described.to_json()}, as_json)
    else:
        show_line(f"{to} holds the index of {described.images:,} images ({described.kind}).")


# ``holdout query``: the images of an index that are most similar to others.


def query(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="A folder that `holdout index` made.")],
    images: Images,
    k: Annotated[int, typer.Option("-k", help="How many neighbours of each image.")] = 10,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Where the index's model is now, if it was moved.")
    ] = None,
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Print the images of an index that are most similar to each of some images."""
    from trainables.files import given_path
    from trainables.inference.index.description import read_description, refuse_neighbours

    described = read_description(given_path(index))
    refuse_neighbours(k, described)
    address = model or described.model
    if address is None:
        raise Mistakes(f"The index {index} does not say where its model is; give --model.")

    from search.cli.embedded_files import embedded_files  # torch, from here on
    from search.tracking import load_model
    from trainables.inference.images import found_images
    from trainables.inference.index.image_index import ImageIndex

    paths = found_images(images)
    loaded = load_model(address, device=device, trust_code=trust_code)
    opened = ImageIndex.load(index, loaded)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    neighbours = opened.search(files.embeddings_ND, k)
    record = {"index": index, "model": address, "k": k, **files.record(), "queries": _queries(files.paths, neighbours)}
    show("" if as_json else rendered(list(map(_table, files.paths, neighbours))), record, as_json)


def _queries(paths: Sequence[str], neighbours: "Sequence[Sequence[Neighbour]]") -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [{"path": path, "neighbours": [asdict(one) for one in found]} for path, found in zip(paths, neighbours)]


def _table(path: str, found: "Sequence[Neighbour]") -> "TextTable":
    from search.report.text_table import TextTable

    return TextTable(
        title=path,
        header=("rank", "similarity", "neighbour"),
        rows=tuple((str(rank), f"{one.similarity:.4f}", one.path) for rank, one in enumerate(found, start=1)),
        labels=1,
        prose=(2,),
    )


# ``holdout register``: a search's chosen models in MLflow's registry.


def register(
    name: Name,
    model_name: Annotated[
        str | None,
        typer.Option("--as", metavar="MODEL_NAME", help="The registered model's name; by default the search's."),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Register the chosen model of each loss in MLflow, with an alias on the best one."""
    from search.config.names import plain_name
    from search.driver.stages import recorded_outcome
    from search.driver.start_up import hold
    from search.driver.synchronise import make_projection, register as register_models
    from search.plan.make_plan import reopened
    from search.plan.search import open_search
    from trainables.mistakes import Mistakes

    try:
        wanted = name if model_name is None else plain_name(model_name)
    except ValueError:
        raise Mistakes(
            f"--as is {model_name!r}; a registered model's name has letters, digits, '.', '_' and '-', and begins with "
            "a letter or digit."
        ) from None
    plan = reopened(runs, name)
    with hold([plan]), closing(open_search(plan)) as search:
        found = register_models(recorded_outcome(search), make_projection(search.plan), wanted)
    versions = ", ".join(f"{loss} is version {version}" for loss, version in found.versions.items())
    show(
        f"models:/{found.name}@{found.alias} is the model of {found.best}; of {found.name}, {versions}.",
        asdict(found),
        as_json,
    )

"""Commands for models: `export`, `embed`, `index`, `query`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import (
    RUNS,
    BatchSize,
    Device,
    Images,
    Json,
    Model,
    Name,
    Runs,
    SkipUnreadable,
    Trust,
    TrustCode,
    TrustSearch,
)
from search.cli.output import Tables, say, show, show_line
from trainables.errors import InvalidInput

if TYPE_CHECKING:
    from search.text_table import TextTable
    from trainables.inference.index import Neighbour


# holdout export


def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder.")],
    loss: Annotated[
        str | None,
        typer.Option("--loss", help="A loss, or `untrained` or `whitened`; by default the recommended one."),
    ] = None,
    runs: Runs = RUNS,
    trust: Trust = None,
    trust_code: TrustSearch = False,
    as_json: Json = False,
) -> None:
    """Write the chosen model with its card, as a torch.export program and as ONNX, each checked on real images."""
    from search.driver.models import export as export_model, programs_table
    from search.plan.stored import stored_search

    found = export_model(stored_search(runs, name), loss, to)
    record = {"folder": str(found.folder), "loss": found.loss, "programs": [asdict(entry) for entry in found.programs]}
    show(record, as_json, lambda: Tables([programs_table(found.programs)] if found.programs else []))
    say([f"Wrote the model of {found.loss} to {found.folder}; its card is {found.folder / 'README.md'}."])


# holdout embed


def embed(
    model: Model,
    images: Images,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="A .npz or .parquet file; an existing one is replaced.")
    ],
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Embed images with a trained model, as in its test, and write the unit-length embeddings and paths to a file."""
    from search.cli.embedded_files import refuse_file, write_embeddings

    refuse_file(to)

    from search.cli.embedded_files import embedded_files, image_files  # torch, from here on
    from search.tracking import load_model

    paths = image_files(images)
    loaded = load_model(model, device=device, trust_code=trust_code)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    write_embeddings(to, files.embeddings_ND, files.paths)
    count, dimensions = files.embeddings_ND.shape
    if as_json:
        show({"file": to, "model": loaded.address, **files.record()}, as_json, str)
    else:
        what = "1 embedding" if count == 1 else f"{count:,} embeddings"
        show_line(f"{to} holds {what} of {dimensions} dimensions.")


# holdout index


def index(
    model: Model,
    images: Images,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FOLDER", help="A new or empty folder; an existing index is replaced."),
    ],
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Embed images with a trained model and write a faiss index for `holdout query`."""
    from search.cli.embedded_files import refuse_unwritable
    from trainables.files import given_path
    from trainables.inference.index import refuse_other_folder

    refuse_other_folder(given_path(to))
    refuse_unwritable(to)

    from search.cli.embedded_files import embedded_files, image_files  # torch, from here on
    from search.tracking import load_model
    from search.trust import INDEX_MODEL, remember
    from trainables.inference.index import ImageIndex

    paths = image_files(images)
    loaded = load_model(model, device=device, trust_code=trust_code)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    made = ImageIndex.of(files.embeddings_ND, files.paths, loaded)
    made.save(to)
    if loaded.address is not None:
        remember(given_path(to), {INDEX_MODEL: loaded.address})
    described = made.description
    if as_json:
        show({"folder": to, **files.record(), **described.to_json()}, as_json, str)
    else:
        what = "1 image" if described.images == 1 else f"{described.images:,} images"
        show_line(f"{to} holds an index of {what}.")


# holdout query


def query(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="A folder that `holdout index` made.")],
    images: Images,
    k: Annotated[int, typer.Option("--k", "-k", help="The number of neighbours of each image.")] = 10,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="The model, if it was moved or the index was copied."),
    ] = None,
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Find the images of an index that are most similar to each given image."""
    from trainables.files import given_path
    from trainables.inference.index import read_description, refuse_neighbours

    described = read_description(given_path(index))
    refuse_neighbours(k, described)
    address = model or described.model
    if address is None:
        raise InvalidInput(f"The index {index} does not name its model; add --model.")
    if not model:
        from search.trust import INDEX_MODEL, check_address

        check_address(given_path(index), INDEX_MODEL, address)
        if not address.startswith("models:/") and isinstance(there := given_path(address), Path) and not there.exists():
            raise InvalidInput(f"The model of {index} is no longer at {address}; add --model with its new path.")

    from search.cli.embedded_files import embedded_files, image_files  # torch, from here on
    from search.tracking import load_model
    from trainables.inference.index import ImageIndex

    paths = image_files(images)
    loaded = load_model(address, device=device, trust_code=trust_code)
    opened = ImageIndex.load(index, loaded)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    neighbours = opened.search(files.embeddings_ND, k)
    record = {"index": index, "model": address, "k": k, **files.record(), "queries": _queries(files.paths, neighbours)}
    show(record, as_json, lambda: Tables(list(map(_table, files.paths, neighbours))))


def _queries(paths: Sequence[str], neighbours: "Sequence[Sequence[Neighbour]]") -> list[dict[str, Any]]:
    return [{"path": path, "neighbours": [asdict(one) for one in found]} for path, found in zip(paths, neighbours)]


def _table(path: str, found: "Sequence[Neighbour]") -> "TextTable":
    from search.text_table import TextTable

    return TextTable(
        title=path,
        header=("rank", "similarity", "neighbour"),
        rows=tuple((str(rank), f"{one.similarity:.4f}", one.path) for rank, one in enumerate(found, start=1)),
        labels=1,
        prose=(2,),
    )

"""``holdout query``: the images of an index that are most similar to others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.models.options import BatchSize, Device, Images, SkipUnreadable, TrustCode
from search.cli.options import Json
from search.cli.output import rendered, show
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from search.report.tables.text_table import TextTable
    from trainables.inference.index.image_index import Neighbour


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
    from trainables.files.whole import given_path
    from trainables.inference.index.description import read_description, refuse_neighbours

    described = read_description(given_path(index))
    refuse_neighbours(k, described)
    address = model or described.model
    if address is None:
        raise Mistakes(f"The index {index} does not say where its model is; give --model.")

    from search.cli.models.reading import embedded_files  # torch, from here on
    from search.tracking.load_model import load_model
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
    from search.report.tables.text_table import TextTable

    return TextTable(
        title=path,
        header=("rank", "similarity", "neighbour"),
        rows=tuple((str(rank), f"{one.similarity:.4f}", one.path) for rank, one in enumerate(found, start=1)),
        labels=1,
        prose=(2,),
    )

"""``holdout embed``: the embeddings of images as a file."""

from typing import Annotated

import typer

from search.cli.models.options import BatchSize, Device, Images, Model, SkipUnreadable, TrustCode
from search.cli.options import Json
from search.cli.output import show, show_line


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
    from search.cli.models.embeddings_file import refuse_file, write_embeddings

    refuse_file(to)

    from search.cli.models.reading import embedded_files  # torch, from here on
    from search.tracking.load_model import load_model
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

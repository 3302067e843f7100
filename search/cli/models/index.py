"""``holdout index``: images, to be found by similarity."""

from typing import Annotated

import typer

from search.cli.models.options import BatchSize, Device, Images, Model, SkipUnreadable, TrustCode
from search.cli.options import Json
from search.cli.output import say, show, show_line
from trainables.inference.index.description import IndexKind


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
    from search.cli.models.embeddings_file import refuse_unwritable
    from trainables.files.whole import given_path
    from trainables.inference.index.description import refuse_other_folder

    refuse_other_folder(given_path(to))
    refuse_unwritable(to)

    from search.cli.models.reading import embedded_files  # torch, from here on
    from search.tracking.load_model import load_model
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

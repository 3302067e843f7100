"""Commands for models: `export`, `embed`, `index`, `query`."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from holdout.cli.options import RUNS, BatchSize, Device, Images, Json, Model, Name, Runs, SkipUnreadable, TrustCode
from holdout.cli.output import Tables, messages, say, show
from search import records, tracking  # whose modules load on first use
from search.text_table import TextTable, refuse_unknown, writing
from search.trust import INDEX_MODEL, addresses_in, check_addresses, remember
from trainables.common.errors import InvalidInput, counted
from trainables.common.files import given_path, write_whole
from trainables.inference.index import ImageIndex, Neighbour, read_description, refuse_neighbours, refuse_other_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.data.images import Unreadable
    from trainables.inference.embedder import Embedder
    from trainables.training.own import OwnModel


def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder.")],
    loss: Annotated[
        str | None, typer.Option("--loss", help="A loss, or `untrained` or `whitened`; by default the recommended one.")
    ] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Write the chosen model with its card, also as ONNX that is checked on real images."""
    from search.driver.finish import export as export_model, programs_table

    search = records.stored_search(runs, name)
    say(["Writing the model, also as ONNX if that is installed, which may take a minute …"], "dim")
    exported, programs = export_model(search, loss, to)
    record = {"folder": str(to), "loss": exported, "programs": [asdict(entry) for entry in programs]}
    show(record, as_json, lambda: Tables([programs_table(programs)] if programs else []))
    say([f"Wrote the model of {exported} to {to}; its card is {to / 'README.md'}."])


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
    refuse_unknown([to], _WRITERS, "--to")
    if given_path(to).is_dir():
        raise InvalidInput(f"--to {to}: it is a folder; name a file.")
    refuse_unwritable(to)
    paths = image_files(images)
    loaded = tracking.load_model(model, device=device, trust_code=trust_code)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    write_embeddings(to, files.embeddings_ND, files.paths)
    count, dimensions = files.embeddings_ND.shape
    record = {"file": to, "model": loaded.address, **files.record()}
    show(record, as_json, lambda: f"{to} holds {counted(count, 'embedding')} of {dimensions} dimensions.")


def index(
    model: Model,
    images: Images,
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER", help="A new or empty folder; an existing index is replaced.")
    ],
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Embed images with a trained model and write a faiss index for `holdout query`."""
    refuse_other_folder(given_path(to))
    refuse_unwritable(to)
    paths = image_files(images)
    loaded = tracking.load_model(model, device=device, trust_code=trust_code)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    made = ImageIndex.of(files.embeddings_ND, files.paths, loaded)
    made.save(to)
    remember(given_path(to), addresses_in(given_path(to), {INDEX_MODEL: loaded.address}, [INDEX_MODEL]))
    record = {"folder": to, **files.record(), **made.description.to_json()}
    show(record, as_json, lambda: f"{to} holds an index of {counted(made.description.images, 'image')}.")


def query(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="A folder that `holdout index` made.")],
    images: Images,
    k: Annotated[int, typer.Option("--k", "-k", help="The number of neighbours of each image.")] = 10,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The model, if it was moved or the index was copied.")
    ] = None,
    device: Device = None,
    batch_size: BatchSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Find the images of an index that are most similar to each given image."""
    described = read_description(given_path(index))
    refuse_neighbours(k, described)
    address = model or described.model
    if address is None:
        raise InvalidInput(f"The index {index} does not name its model; add --model.")
    if not model:
        check_addresses(given_path(index), {INDEX_MODEL: address}, [INDEX_MODEL])
        if not address.startswith("models:/") and isinstance(there := given_path(address), Path) and not there.exists():
            raise InvalidInput(f"The model of {index} is no longer at {address}; add --model with its new path.")
    paths = image_files(images)
    loaded = tracking.load_model(address, device=device, trust_code=trust_code)
    opened = ImageIndex.load(index, loaded)
    files = embedded_files(loaded, paths, batch_size=batch_size, skip_unreadable=skip_unreadable)
    neighbours = opened.search(files.embeddings_ND, k)
    queries = [{"path": path, "neighbours": [*map(asdict, found)]} for path, found in zip(files.paths, neighbours)]
    record = {"index": index, "model": address, "k": k, **files.record(), "queries": queries}
    show(record, as_json, lambda: Tables(list(map(_table, files.paths, neighbours))))


def _table(path: str, found: Sequence[Neighbour]) -> TextTable:
    return TextTable(
        title=path,
        header=("rank", "similarity", "neighbour"),
        rows=tuple((str(rank), f"{one.similarity:.4f}", one.path) for rank, one in enumerate(found, start=1)),
        prose=(2,),
    )


# Files of embeddings, in shapes N images, D dimensions.


def refuse_unwritable(address: str) -> None:
    """Raise :class:`InvalidInput` if the nearest existing folder above ``address`` is not writable."""
    path = given_path(address)
    if not isinstance(path, Path):
        return  # a remote storage fails when it is written
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise InvalidInput(f"--to {address}: {above} is not writable; name another folder.")


def write_embeddings(address: str, embeddings_ND: "NDArray[np.float32]", paths: Sequence[str]) -> None:
    """Write ``embeddings`` (float32 [N, D]) and ``paths`` as arrays of a .npz file or columns of a .parquet file."""
    path = given_path(address)
    try:
        with writing("--to", address):
            write_whole(path, lambda file: _WRITERS[path.suffix](file, embeddings_ND, paths))
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"--to {address}: the path {error.object!a} is not UTF-8, which Parquet requires; write a .npz file."
        ) from error


def _write_npz(file: IO[bytes], embeddings_ND: "NDArray[np.float32]", paths: Sequence[str]) -> None:
    import numpy as np

    np.savez(file, embeddings=embeddings_ND, paths=np.array(paths, dtype=np.str_))


def _write_parquet(file: IO[bytes], embeddings_ND: "NDArray[np.float32]", paths: Sequence[str]) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    flat = pyarrow.array(embeddings_ND.reshape(-1))
    embeddings = pyarrow.FixedSizeListArray.from_arrays(flat, embeddings_ND.shape[1])
    write_table(pyarrow.table({"embeddings": embeddings, "paths": pyarrow.array(paths, pyarrow.string())}), file)


_WRITERS = {".npz": _write_npz, ".parquet": _write_parquet}


# Embedding image files.


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Return the images among and below ``paths``, and print what is left out; errors as in :func:`found_images`."""
    from trainables.data.sets.folders import left_out
    from trainables.inference.given_images import found_images

    found = found_images(paths)
    say((left_out(path, of_classes=False) for path in paths if path.is_dir()), "yellow")
    return found


@dataclass(frozen=True, kw_only=True)
class EmbeddedFiles:
    """Embeddings [N, D] of the images at ``paths``, the images that could not be read, and the duration."""

    embeddings_ND: "NDArray[np.float32]"
    paths: tuple[str, ...]
    unreadable: "tuple[Unreadable, ...]"
    seconds: float

    @property
    def images_per_second(self) -> float:
        return (len(self.paths) + len(self.unreadable)) / self.seconds

    def record(self) -> dict[str, Any]:
        return {
            "images": len(self.paths),
            "dimensions": self.embeddings_ND.shape[1],
            "unreadable": [{"path": image.key, "reason": image.reason} for image in self.unreadable],
            "seconds": self.seconds,
            "images_per_second": self.images_per_second,
        }


def embedded_files(
    model: "Embedder | OwnModel", paths: Sequence[Path], *, batch_size: int | None, skip_unreadable: bool
) -> EmbeddedFiles:
    """Embed image files, or for a model of features files of embeddings, with a progress bar.

    Raises:
        InvalidInput: images cannot be read, or a user-defined training's model is given other files than embeddings.
    """
    from trainables.data.sets.features import SUFFIXES, is_feature_file
    from trainables.inference.embedder import Embedder

    if not isinstance(model, Embedder):
        if other := [path for path in paths if not is_feature_file(path)]:
            raise InvalidInput(
                f"{model.address} is a model of {model.spec.trainable}, a user-defined training, and {other[0]} is no "
                f"file of embeddings ({', '.join(SUFFIXES)}); give it its items in Python, by holdout.load(…).embed(…)."
            )
        return _embedded_features(paths, model.embed)
    if model.network.on_vectors:
        return _embedded_features(paths, partial(model.embed, batch_size=batch_size))
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Embedding images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = messages()
    begun = time.perf_counter()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(paths))
        found = model.embed_readable(
            paths, batch_size=batch_size, on_progress=lambda done: progress.update(task, completed=done)
        )
    seconds = time.perf_counter() - begun
    sentences = [f"{image.key} cannot be read ({image.reason})." for image in found.unreadable]
    if found.unreadable and not skip_unreadable:
        count = f"{len(found.unreadable):,} of {len(paths):,} images cannot be read"
        raise InvalidInput([*sentences, f"{count}, so nothing was written: repair them, or add --skip-unreadable."])
    if not len(found.positions_N):
        raise InvalidInput([*sentences, "No image can be read, so nothing was written."])
    say(sentences, "yellow")
    kept = tuple(str(paths[position]) for position in found.positions_N.tolist())
    files = EmbeddedFiles(embeddings_ND=found.embeddings_ND, paths=kept, unreadable=found.unreadable, seconds=seconds)
    skipped = f"; skipped {len(found.unreadable):,} that cannot be read" if found.unreadable else ""
    pace = f"{files.images_per_second:,.1f} images per second"
    say([f"{counted(len(kept), 'image')} in {seconds:.1f} s, {pace}{skipped}."], "dim")
    return files


def _embedded_features(
    paths: Sequence[Path], embed: "Callable[[NDArray[np.float32]], NDArray[np.float32]]"
) -> EmbeddedFiles:
    """Embed the items of files of embeddings, which are called by their ids, or by file and row."""
    import numpy as np

    from trainables.data.sets.features import read_features

    begun = time.perf_counter()
    files = [read_features(path) for path in paths]
    several = len(files) > 1
    return EmbeddedFiles(
        embeddings_ND=np.concatenate([embed(file.embeddings_NF) for file in files]),
        paths=tuple(f"{path}: {name}" if several else name for path, file in zip(paths, files) for name in file.names),
        unreadable=(),
        seconds=time.perf_counter() - begun,
    )

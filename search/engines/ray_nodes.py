"""Preparation of a cluster's nodes before the first trial."""

import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from search.engines.ray_tune import on_other_nodes
from trainables.data.store.spec import StoreSpec
from trainables.errors import InvalidInput, raise_if_any
from trainables.files import as_path
from trainables.storage import AnyPath, DiskFull, ask, in_time


@contextmanager
def probe_file(folder: str) -> Iterator[str]:
    """Create a file in ``folder``, a path or a URL, and yield its address; the file is removed at the end.

    Raises:
        InvalidInput: the file cannot be written.
    """
    address = f"{folder}/.shared-{uuid.uuid4().hex}"
    file = as_path(address)
    try:
        in_time(lambda: _make(file))
    except Exception as error:  # every storage library raises its own
        raise InvalidInput(
            f"Checkpoints cannot be written to {folder} ({type(error).__name__}: {error}); see that this machine may, "
            "or name another folder or URL (--runs, checkpoints.storage_path)."
        ) from error
    try:
        yield address
    finally:
        ask(file, lambda: file.unlink(missing_ok=True))


def _make(file: AnyPath) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def make_nodes_ready(images: Sequence[StoreSpec], shared: Sequence[str]) -> None:
    """Decode the images on every node but the driver's, and check that all share the places of the checkpoints.

    Args:
        images: the images to decode.
        shared: folders and URLs (see :func:`trainables.files.as_path`).

    Raises:
        InvalidInput: images that cannot be read somewhere; a folder or URL that cannot be written, or that is not the
            same on all nodes.
        DiskFull: a node has no space for the images.
    """
    with ExitStack() as stack:
        probe_files = {folder: stack.enter_context(probe_file(folder)) for folder in shared}
        answers = on_other_nodes(_ready, images, probe_files)
    raise_if_any(sorted({sentence for answer in answers if isinstance(answer, tuple) for sentence in answer}))
    for answer in answers:
        if isinstance(answer, DiskFull):
            raise answer


def _ready(images: Sequence[StoreSpec], probe_files: dict[str, str]) -> tuple[str, ...] | DiskFull:
    """Prepare this node; return sentences on what it lacks."""
    node = socket.gethostname()
    missing = [folder for folder, address in probe_files.items() if not in_time(as_path(address).exists)]
    if missing:
        return tuple(
            f"{folder} is not the same on {node}, and checkpoints go there; name a folder that all machines of the "
            "cluster share with --runs, or a URL with checkpoints.storage_path."
            for folder in missing
        )
    try:
        for recipe in images:
            recipe.make()
    except InvalidInput as error:
        return tuple(f"On {node}: {sentence}" for sentence in error.sentences)
    except DiskFull as error:
        return DiskFull(f"On {node}: {error}")
    return ()

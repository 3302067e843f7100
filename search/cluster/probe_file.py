"""Whether checkpoints can be written to a folder or URL, and which nodes see them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from trainables.files.storage import AnyPath, ask, in_time
from trainables.files.whole import as_path
from trainables.mistakes import Mistakes


@contextmanager
def probe_file(folder: str) -> Iterator[str]:
    """The address of a file in ``folder``, a path or a URL, for a while.

    Raises:
        Mistakes: it cannot be written.
    """
    address = f"{folder}/.shared-{uuid.uuid4().hex}"
    file = as_path(address)
    try:
        in_time(lambda: _make(file))
    except Exception as error:  # every store's library has its own
        raise Mistakes(
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

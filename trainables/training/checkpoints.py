"""Checkpoints of a training, written in the background.

Every attempt at a training writes into its own folder, so an attempt that is believed dead but still writes does no
harm::

    attempt-<k>/begun               the first file of an attempt (stores such as S3 have no empty folders)
    attempt-<k>/last.pt             the state to resume from
    attempt-<k>/best.safetensors    the best model so far, with its description in the header
    attempt-<k>/records.json        instead of last.pt, for a finished fold of a cross-validation

Since files are written in the background, the driver may end a trial while its worker is still writing. The driver then
removes ``begun`` before the other files, and a worker that finds it missing deletes the file that it has just written.

Nothing here needs torch before a checkpoint is saved or loaded.
"""

import copy
import io
import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.common.files import as_path, read_whole, remove_drafts, write_json, write_whole
from trainables.common.storage import AnyPath, ask
from trainables.inference.model_files import tensors_bytes

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

State = TypeVar("State")

BEST = "best.safetensors"
BEGUN = "begun"


class Checkpoints:
    """Checkpoints of the spec with ``digest`` below ``directory``, a path or URL; methods raise a StorageFailure."""

    def __init__(self, directory: str, digest: str) -> None:
        self._root = as_path(directory)
        self._digest = digest
        self._attempt = ask(self._root, self._new_attempt)
        self._thread = ThreadPoolExecutor(max_workers=1)  # at a regular exit Python waits for its job
        self._under_way: Future[None] | None = None

    def _new_attempt(self) -> AnyPath:
        self._root.mkdir(parents=True, exist_ok=True)
        while True:
            known = _attempts(self._root)
            number = int(known[-1].name.removeprefix("attempt-")) + 1 if known else 1
            attempt = self._root / f"attempt-{number}"
            try:
                attempt.mkdir()
            except FileExistsError:  # another attempt began at this moment
                continue
            (attempt / BEGUN).touch()
            return attempt

    @property
    def best(self) -> str:
        """Return the path of the best model, relative to the training's directory."""
        return f"{self._attempt.name}/{BEST}"

    def load_last(self) -> dict[str, Any] | None:
        """Load the newest readable state of the training with this digest, from any attempt."""
        for attempt in reversed(ask(self._root, lambda: _attempts(self._root))):
            path = attempt / "last.pt"
            if (content := read_whole(path)) is None:
                continue
            try:
                state = parsed_state(content)
            except Exception as error:  # a damaged file can raise anything
                logger.warning("%s cannot be read (%s); an older checkpoint is used.", path, type(error).__name__)
                continue
            if state["digest"] == self._digest:
                return state
            logger.warning("%s belongs to another training; it is not used.", path)
        return None

    def save(
        self,
        last: dict[str, Any],
        best: "Mapping[str, Tensor] | None" = None,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        """Save ``last`` to resume from and, if given, ``best`` with its ``description`` as the best model so far.

        Both are copied now, once the files of the previous call are written, and written in the background, ``best``
        first; an error is raised by the next call. A process that is killed while it trains the next epoch loses at
        most this one.
        """
        self.wait()  # so that there is one copy at a time
        state, model = on_cpu(({"digest": self._digest, **last}, best))

        def write() -> None:
            import torch

            if model is not None:
                content = tensors_bytes(model, description)
                write_whole(self._attempt / BEST, lambda file: file.write(content))
            write_whole(self._attempt / "last.pt", lambda file: torch.save(state, file))
            self._remove_if_ended("last.pt")

        self._under_way = self._thread.submit(write)

    def wait(self) -> None:
        """Wait until all files are written; raise the error of one that could not be, once."""
        if self._under_way is None:
            return
        wait([self._under_way])  # separate from result(), so that Ctrl-C here does not drop the job
        job, self._under_way = self._under_way, None
        job.result()

    def close(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Keep only the best model and the ``records`` of a finished training."""
        self.wait()
        write_json(self._attempt / "records.json", {"digest": self._digest, "records": records})
        self._remove_if_ended("records.json")
        self._unlink("last.pt")

    def _remove_if_ended(self, name: str) -> None:
        """Remove a file that was written during or after :func:`forget_last`."""
        if not ask(self._attempt, (self._attempt / BEGUN).exists):
            self._unlink(name)

    def _unlink(self, name: str) -> None:
        ask(self._attempt, lambda: (self._attempt / name).unlink(missing_ok=True))


def on_cpu(state: State) -> State:
    """Return a copy of ``state`` with all tensors in main memory; one that occurs several times is copied once."""
    import torch

    copies: dict[int, Any] = {}

    def take(part: object) -> None:
        if isinstance(part, torch.Tensor) and id(part) not in copies:
            copies[id(part)] = part.detach().to("cpu", copy=True)
        elif isinstance(part, Mapping | list | tuple):
            for entry in part.values() if isinstance(part, Mapping) else part:
                take(entry)

    take(state)
    return copy.deepcopy(state, copies)  # which takes what is in its memo as copied already


def finished_records(directory: str, digest: str) -> list[Any] | None:
    """Return the records of a closed training with ``digest`` below ``directory``, or None."""
    root = as_path(directory)
    for attempt in ask(root, lambda: _attempts(root)):
        text = read_whole(attempt / "records.json")
        if text is not None and (content := json.loads(text))["digest"] == digest:
            return list(content["records"])
    return None


def parsed_state(content: bytes) -> dict[str, Any]:
    """Load the state in the ``content`` of a file onto the CPU, without executing any code in it."""
    import torch

    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def forget_last(directory: str) -> None:
    """Remove the files that only an unfinished training needs; a worker that still writes one removes it itself."""
    root = as_path(directory)

    def unlink(name: str) -> None:
        for path in root.rglob(f"attempt-*/{name}"):
            path.unlink(missing_ok=True)

    for name in (BEGUN, "last.pt", "records.json"):  # in this order, see the top of this module
        ask(root, partial(unlink, name))
    folds: list[AnyPath] = ask(root, lambda: sorted(root.glob("fold-*")))
    for folder in [root, *folds]:
        for attempt in ask(root, partial(_attempts, folder))[:-1]:  # the last one may still be written to
            ask(root, partial(remove_drafts, attempt))


def _attempts(directory: AnyPath) -> list[AnyPath]:
    return sorted(directory.glob("attempt-*"), key=lambda path: int(path.name.removeprefix("attempt-")))

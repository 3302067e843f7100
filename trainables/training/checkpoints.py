"""Checkpoints of a training, written in the background."""

import copy
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import Tensor

from trainables.files import as_path, read_whole, remove_drafts, write_json, write_whole
from trainables.inference.model_files import tensors_bytes
from trainables.storage import AnyPath, ask

# Work beside the training, such as writing files: one job at a time, in a thread of its own.


class BackgroundWriter:
    """Runs jobs in a thread, at most one under way: who starts the next one waits for it.

    What a job raises is raised where somebody waits for it, so that a full disk ends the training as any other error
    does. At a regular end of the process Python waits for the job that is under way.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._under_way: Future[None] | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Run ``job`` when the one before is done.

        Raises:
            Exception: what the job before raised; ``job`` is not run then.
        """
        self.wait()
        self._under_way = self._thread.submit(job)

    def wait(self) -> None:
        """Wait until no job is under way.

        Raises:
            Exception: what the job raised, once.
        """
        if self._under_way is None:
            return
        wait([self._under_way])  # apart from asking for the result: Ctrl-C here must not make us forget the job
        job, self._under_way = self._under_way, None
        job.result()


# A copy of a training's state in main memory, which can be written while the training goes on.

State = TypeVar("State")


class StateCopy:
    """Copies states of the same training, one after the other, into the same memory.

    New memory would cost more than the copying: the system hands it out page by page, and pinned memory slower still.
    """

    def __init__(self) -> None:
        self._copies: list[Tensor] = []

    def take(self, state: State) -> State:
        """``state`` with all tensors on the CPU; it may be read until the next call.

        A tensor that ``state`` holds in several parts is copied once.
        """
        tensors = {id(tensor): tensor for tensor in _tensors(state)}
        pairs = zip_longest(tensors.values(), self._copies[: len(tensors)])
        self._copies = [_copied(tensor, memory) for tensor, memory in pairs]
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        # deepcopy takes what it finds in its memo for copied already; all else, such as counters, it copies itself.
        return copy.deepcopy(state, dict(zip(tensors, self._copies, strict=True)))


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Mapping):
        for part in state.values():
            yield from _tensors(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from _tensors(part)


def _copied(tensor: Tensor, memory: Tensor | None) -> Tensor:
    """The values of ``tensor``, in ``memory`` where they fit; those of a GPU are there when its stream is done."""
    if memory is None or (memory.dtype, memory.shape, memory.stride()) != (tensor.dtype, tensor.shape, tensor.stride()):
        memory = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return memory.copy_(tensor.detach(), non_blocking=True)


# A training's checkpoints: ``attempt-<k>/last.pt`` to go on from, ``attempt-<k>/best.safetensors`` to keep.
#
# The latter describes itself: its head says which network it is, how images are prepared for it, and how it was
# trained.
#
# A fold of a cross-validation that is done leaves ``attempt-<k>/records.json`` instead of ``last.pt``.
#
# Every attempt writes into a folder of its own, so that one that is believed dead but still writes can harm nobody.
#
# A training goes on while its checkpoints are written. So it may end, for the driver, while they are still under way:
# the driver then removes :data:`BEGUN` before all else that is not needed any more, and whoever has written a file to
# go
# on from looks for it and takes the file back.

logger = logging.getLogger(__name__)

BEST = "best.safetensors"
BEGUN = "begun"
"""An attempt's first file, since a store such as S3 knows no empty folders, and the first that goes when it ended."""


def _attempts(directory: AnyPath) -> list[AnyPath]:
    return sorted(directory.glob("attempt-*"), key=lambda path: int(path.name.removeprefix("attempt-")))


def _folds(directory: AnyPath) -> list[AnyPath]:
    return sorted(directory.glob("fold-*"))


class Checkpoints:
    """The checkpoints of the training whose spec has ``digest``, below ``directory``, a path or a URL.

    Where that place fails, each method raises :class:`~trainables.storage.StorageFailure`.
    """

    def __init__(self, directory: str, digest: str) -> None:

        self._root = as_path(directory)
        self._digest = digest
        self._attempt = ask(self._root, self._new_attempt)
        self._copy = StateCopy()
        self._writer = BackgroundWriter()

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
        """Where the best model is kept, relative to the training's directory."""
        return f"{self._attempt.name}/{BEST}"

    def save(
        self,
        last: dict[str, Any],
        best: "Mapping[str, Tensor] | None" = None,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep ``last`` to go on from and, where it is given, ``best`` with its ``description`` as the best so far.

        They are copied now, when those of the call before are written, and written in the background, ``best`` first.
        So a process that is killed while it trains the next epoch loses at most these.

        Raises:
            Exception: what the writing after the call before raised.
        """
        self._writer.wait()  # it reads the copy that is overwritten next
        last, best = self._copy.take((last, best))
        self._writer.start(lambda: self._write(last, best, description))

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            Exception: what the writing raised.
        """
        self._writer.wait()

    def _write(
        self, last: dict[str, Any], best: "Mapping[str, Tensor] | None", description: Mapping[str, Any] | None
    ) -> None:
        import torch

        if best is not None:
            content = tensors_bytes(best, description)
            write_whole(self._attempt / BEST, lambda file: file.write(content))
        state = {"digest": self._digest, **last}
        write_whole(self._attempt / "last.pt", lambda file: torch.save(state, file))
        self._take_back_if_ended("last.pt")

    def _take_back_if_ended(self, name: str) -> None:
        """Remove what was written after :func:`forget_last`, or at the same moment."""
        if not ask(self._attempt, (self._attempt / BEGUN).exists):
            self._unlink(name)

    def _unlink(self, name: str) -> None:
        ask(self._attempt, lambda: (self._attempt / name).unlink(missing_ok=True))

    def load_last(self) -> dict[str, Any] | None:
        """The newest readable state of this very training, whichever attempt wrote it."""
        for attempt in reversed(ask(self._root, lambda: _attempts(self._root))):
            path = attempt / "last.pt"
            if (content := read_whole(path)) is None:
                continue
            try:
                state = _parsed(content)
            except Exception as error:  # a damaged file raises whatever the reader trips over
                logger.warning("%s cannot be read (%s); an older checkpoint is used.", path, type(error).__name__)
                continue
            if state["digest"] == self._digest:
                return state
            logger.warning("%s belongs to another training; it is not used.", path)
        return None

    def close(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Keep only the records of a training that is done, and its best model."""
        self.wait()
        write_json(self._attempt / "records.json", {"digest": self._digest, "records": records})
        self._take_back_if_ended("records.json")
        self._unlink("last.pt")


def finished_records(directory: str, digest: str) -> list[Any] | None:
    """The records of the training with ``digest`` below ``directory``, if one was closed there."""
    root = as_path(directory)
    for attempt in ask(root, lambda: _attempts(root)):
        text = read_whole(attempt / "records.json")
        if text is not None and (content := json.loads(text))["digest"] == digest:
            return list(content["records"])
    return None


def load_checkpoint(path: AnyPath) -> dict[str, Any]:
    """The state stored at ``path``, on the CPU; nothing in it is executed."""
    return _parsed(path.read_bytes())


def _parsed(content: bytes) -> dict[str, Any]:
    import torch

    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def forget_last(directory: str) -> None:
    """Remove what only an unfinished training needs; what a worker still writes of it does not stay either.

    Raises:
        StorageFailure: its place fails.
    """
    root = as_path(directory)

    def unlink(name: str) -> None:
        for path in root.rglob(f"attempt-*/{name}"):
            path.unlink(missing_ok=True)

    for name in (BEGUN, "last.pt", "records.json"):  # in this order, see the head of this file
        ask(root, partial(unlink, name))
    for folder in [root, *ask(root, partial(_folds, root))]:
        for attempt in ask(root, partial(_attempts, folder))[:-1]:  # the writer of the last one may still be at work
            ask(root, partial(remove_drafts, attempt))

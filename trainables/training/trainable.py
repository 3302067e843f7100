"""The interface of a user-defined training, and its declared ranges.

A class has the five methods of :class:`Trainable`; :func:`trainable` makes one of a function. Queue, pruning, resume,
confirmation, test and verification are those of every training: N items are embedded, and scored as retrieval among
unseen classes.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from trainables.common.errors import InvalidInput, counted, raise_if_any, shaped
from trainables.common.part_tables import load_part
from trainables.common.ranges import Range
from trainables.training.spec import derived_seed

if TYPE_CHECKING:
    import torch

Embed = Callable[[Any], Any]
BATCH = 128
"""Transformed items that a network embeds at once."""

# The interface.


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """Items of some classes with their labels, which are positions in ``class_names``; every position occurs.

    ``items`` are what the data set gives: a list, or float32 [N, F] for embeddings. All of it is a copy.
    """

    items: Any
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    transforms: list[Callable[[Any], Any]] = field(default_factory=list, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def dataset(self, transform: Callable[[Any], Any]) -> "Transformed":
        """Return the items and labels as a data set of PyTorch. A network embeds items by its last ``transform``."""
        self.transforms.append(transform)
        return Transformed(self.items, self.labels, transform)


@dataclass(frozen=True)
class Transformed:
    """A map-style data set of PyTorch: pairs of ``transform(item)``, a tensor, and label. Pictures are Pillow's."""

    items: Any
    targets: Any
    transform: Callable[[Any], Any]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        from PIL import Image

        item = self.items[row]
        is_picture = isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim == 3
        return self.transform(Image.fromarray(item) if is_picture else item), int(self.targets[row])


def network_embeddings(network: "torch.nn.Module", call: Embed, items: Any, train: Items) -> "torch.Tensor":
    """Embed ``items`` by ``call`` with a network in evaluation mode: as tensors, if they are vectors or transformed."""
    import torch

    weight, modes = next(network.parameters()), [(part, part.training) for part in network.modules()]
    network.eval()
    with torch.no_grad():
        if transforms := getattr(train, "transforms", ()):  # an object with the documented fields will do
            data: Any = Transformed(items, [0] * len(items), transforms[-1])
            batches: Any = torch.utils.data.DataLoader(data, batch_size=BATCH)
            found = torch.cat([call(batch.to(weight.device)) for batch, _ in batches])
        elif isinstance(items, np.ndarray):
            found = call(torch.as_tensor(items, device=weight.device, dtype=weight.dtype))
        else:
            found = call(items)
    for part, training in modes:
        part.training = training
    return found


class Trainable:
    """A user-defined training, an epoch at a time.

    All methods but :meth:`finish` and :meth:`predictor` are needed. ``setup`` comes first, also before ``load``. Before
    ``setup`` and each ``train_epoch`` the global generators of Python, NumPy and PyTorch are seeded by the trial's seed
    and the epoch.

    Attributes:
        space: the searched hyperparameters with their ranges and defaults; trial 0 trains the defaults.
        tolerance: the largest difference of a metric or loss between two trainings with the same seed. 0: none.
        epochs: the planned epochs of this training, ``training.epochs`` of the search file.
    """

    space: ClassVar[Mapping[str, Range]] = {}
    tolerance: ClassVar[float] = 0.0
    epochs: int = 1

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: "torch.device") -> None:
        """Build what is trained. ``train`` has the items of the training classes; no other items are given here."""
        raise NotImplementedError

    def train_epoch(self) -> Mapping[str, float] | None:
        """Train an epoch and return numbers to record, such as its ``loss``, or None."""
        raise NotImplementedError

    def embed(self, items: Any) -> Any:
        """Return one embedding per item, in their order: a tensor or an array of numbers [N, D]."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write all that :meth:`load` needs into the empty ``folder``."""
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        """Continue from what :meth:`save` wrote into ``folder``."""
        raise NotImplementedError

    def finish(self) -> None:
        """Release what the training holds; called when it ends in any way."""

    @classmethod
    def predictor(cls, folder: Path, params: Mapping[str, Any], *, device: "torch.device") -> Callable[[Any], Any]:
        """Return the exported model: a function that maps items to embeddings.

        ``folder`` holds what :meth:`save` wrote, and stays as long as the function is used. There are no training
        items. :func:`holdout.load` needs this method, a search does not.
        """
        raise NotImplementedError


REQUIRED = ("setup", "train_epoch", "embed", "save", "load")

EXAMPLE = 'space = {"lr": holdout.Float(1e-4, 1e-1, log=True, default=1e-2)}'


def trainable_class(path: str) -> type[Trainable]:
    """Import the training at the import path ``path``; all that is wrong with it is one error."""
    found = load_part(path, kind="trainable", base=Trainable)
    raise_if_any([f"{path} {sentence}" for sentence in _problems(found)])
    return cast(type[Trainable], found)


def _problems(found: type[Trainable]) -> Iterator[str]:
    for name in REQUIRED:
        if getattr(found, name) is getattr(Trainable, name):
            yield f"has no method {name}; define it, see holdout.Trainable."
    if isinstance(found.tolerance, bool) or not isinstance(found.tolerance, int | float) or not found.tolerance >= 0:
        yield f"has the tolerance {found.tolerance!r}; give a number of at least 0."
    if not isinstance(found.space, Mapping):
        yield f"must declare its space as a mapping to ranges, as in `{EXAMPLE}`; it is {found.space!r:.100}."
        return
    for name, entry in found.space.items():
        if not isinstance(name, str) or not name.isidentifier():
            yield f"has the name {name!r} in its space; give it letters, digits and underscores."
        elif not isinstance(entry, Range):
            yield f"has the range {name} = {entry!r:.100}; give a holdout.Float, Int or Choice, as in `{EXAMPLE}`."
        elif entry.default is None and not entry.contains(None):
            yield f"has no default for {name}, which trial 0 trains; add one, as in `{EXAMPLE}`."


def has_predictor(found: type[Trainable]) -> bool:
    """Return True if the training defines :meth:`Trainable.predictor`."""
    return getattr(found.predictor, "__func__", None) is not getattr(Trainable.predictor, "__func__", None)


def seed_epoch(seed: int, epoch: int) -> None:
    """Seed Python, NumPy and PyTorch for an epoch, from 1, of the training with ``seed``; epoch 0 is ``setup``."""
    import torch

    derived = derived_seed(seed, epoch, "own")
    random.seed(derived)
    np.random.seed(derived)
    torch.manual_seed(derived)


def checked_embeddings(found: Any, count: int, method: str = "embed") -> "torch.Tensor":
    """Return what a ``method`` returned for ``count`` items as a float32 tensor [N, D], detached."""
    import torch

    from trainables.common.vectors import numbers

    if not isinstance(found, torch.Tensor | np.ndarray):
        raise InvalidInput(f"{method} must return a tensor or an array; it returned {type(found).__name__}.")
    embeddings_ND = numbers(found, f"what {method} returns")
    if embeddings_ND.ndim != 2 or not embeddings_ND.shape[1] or len(embeddings_ND) != count:
        found = shaped(embeddings_ND.shape)
        raise InvalidInput(f"{method} must return a row for each of {counted(count, 'item')}; it returned {found}.")
    return embeddings_ND.float()


# Trainings that are repeated instead of saved.


class RepeatedTrainable(Trainable):
    """A training that is not saved: :meth:`load` repeats it up to the saved epoch.

    The embeddings of some training items are saved and compared, so that another model than the saved one is an error.
    Subclasses extend :meth:`setup`, and increment :attr:`epoch`.
    """

    probed: ClassVar[int] = 16

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: "torch.device") -> None:
        self.train, self.seed, self.epoch = train, seed, 0

    def save(self, folder: Path) -> None:
        """Write the epoch, and embeddings to recognise it by."""
        (folder / "epoch.json").write_text(json.dumps(self.epoch))
        np.save(folder / "probe.npy", self._probe())

    def _probe(self) -> NDArray[Any]:
        items = self.train.items[: self.probed]
        return checked_embeddings(self.embed(items), len(items)).double().cpu().numpy()

    def load(self, folder: Path) -> None:
        """Train up to the saved epoch."""
        for epoch in range(1, json.loads((folder / "epoch.json").read_text()) + 1):
            seed_epoch(self.seed, epoch)
            self.train_epoch()
        saved, found = np.load(folder / "probe.npy"), self._probe()
        if saved.shape != found.shape or not np.allclose(saved, found, rtol=0, atol=max(self.tolerance, 1e-6)):
            raise InvalidInput(
                f"Repeated to epoch {self.epoch}, the training gives other embeddings, so its model cannot be "
                "restored; draw random numbers from its seed, or write a holdout.Trainable with save and load."
            )


# A function as a training.


class Report:
    """The callback of a function that trains: ``report(embed, loss=0.3)`` ends an epoch.

    ``embed``, a function or a network, maps items to embeddings and is used until the next report. A network gets
    tensors, in evaluation mode. The call of the last epoch does not return. ``epochs`` are planned, ``seed`` is the
    trial's, and ``device`` is the device to train on.
    """

    def __init__(self, *, epochs: int, seed: int, device: "torch.device") -> None:
        self.epochs, self.seed, self.device = epochs, seed, device
        self._goes_on: SimpleQueue[bool] = SimpleQueue()
        self._reports: SimpleQueue[tuple[Embed, Mapping[str, float]] | BaseException | None] = SimpleQueue()

    def __call__(self, embed: Embed, /, **numbers: float) -> None:
        """End an epoch, and record the ``numbers``."""
        self._reports.put((embed, numbers))
        self._wait()

    def _wait(self) -> None:
        if not self._goes_on.get():
            raise _Ended

    def run(self, function: Callable[[], None]) -> None:
        """Run ``function``, which calls this object, in this thread."""
        try:
            self._wait()
            function()
            self._reports.put(None)
        except _Ended:
            pass
        except BaseException as error:
            self._reports.put(error)

    def next(self) -> tuple[Embed, Mapping[str, float]] | None:
        """Let the function run until its next report, and return that; None if the function returns."""
        self._goes_on.put(True)
        found = self._reports.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def end(self) -> None:
        self._goes_on.put(False)


class _Ended(BaseException):
    """The training was ended from outside."""


class FunctionTrainable(RepeatedTrainable):
    """A function ``train(params, train, report)`` as a training. It runs in a thread that waits between its reports."""

    function: ClassVar[Callable[..., Any]]

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: "torch.device") -> None:
        super().setup(params, train, seed=seed, device=device)
        self._report = report = Report(epochs=self.epochs, seed=seed, device=device)
        function = self.function
        Thread(target=report.run, args=(lambda: function(params, train, report),), daemon=True).start()

    def train_epoch(self) -> Mapping[str, float]:
        """Let the function run until its next report."""
        found = self._report.next()
        if found is None:
            raise InvalidInput(
                f"The function returned after {counted(self.epoch, 'report')}, and training.epochs is {self.epochs}; "
                "report once in each of as many epochs as report.epochs says."
            )
        self._reported, numbers = found
        self.epoch += 1
        return numbers

    def embed(self, items: Any) -> Any:
        import torch

        by = self._reported
        return network_embeddings(by, by, items, self.train) if isinstance(by, torch.nn.Module) else by(items)

    def finish(self) -> None:
        self._report.end()


def trainable(
    adapter: type[Trainable] = FunctionTrainable, /, *, tolerance: float = 0.0, **space: Range
) -> Callable[[Callable[..., Any]], type[Trainable]]:
    """Return a decorator that makes a training of a function ``train(params, train, report)``.

    Args:
        adapter: the class that runs it. By default the function trains, and reports each epoch. With an adapter for a
            library, such as :class:`holdout.SentenceTransformerTrainable`, it returns the library's own objects.
        tolerance: see :class:`Trainable`.
        space: the searched hyperparameters.
    """

    def decorate(function: Callable[..., Any]) -> type[Trainable]:
        members = {
            "function": staticmethod(function),
            "space": space,
            "tolerance": tolerance,
            "__module__": function.__module__,
            "__doc__": function.__doc__,
        }
        return type(function.__name__, (adapter,), members)

    return decorate

"""The interface of a user-defined training, and its declared ranges.

A class has the five methods of :class:`Trainable`; :func:`trainable` makes one of a function. Queue, pruning, resume,
confirmation, test and verification are those of every training. Items are either embedded and scored as retrieval among
unseen classes, or scored by the training itself.

Legend: N items.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from trainables.metrics.table import METRICS, is_retrieval
from trainables.mistakes import Mistakes, counted, raise_if_any
from trainables.parts import OURS, load_part
from trainables.spec import derived_seed
from trainables.training.scores import checked_scores

if TYPE_CHECKING:
    import torch

Value = bool | int | float | str | None

# Declared ranges.


@dataclass(frozen=True)
class Float:
    """A real number from ``low`` to ``high``, on a log scale or in steps; trial 0 has the ``default``."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    default: float | None = None


@dataclass(frozen=True)
class Int:
    """A whole number from ``low`` to ``high``, on a log scale or in steps; trial 0 has the ``default``."""

    low: int
    high: int
    log: bool = False
    step: int = 1
    default: int | None = None


@dataclass(frozen=True)
class Choice:
    """One of ``choices``; trial 0 has the ``default``."""

    choices: Sequence[Value]
    default: Value = None


Range = Float | Int | Choice


# The interface.


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """Items of some classes with their labels, which are positions in ``class_names``.

    In a split by class these are the classes of the items, so every label from 0 to C−1 occurs. In a split by group or
    time they are all classes of the data set, the same in training, validation and test.

    ``items`` are what the data set gives: a list, or float32 [N, F] for embeddings. All of it is a copy.
    """

    items: Any
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


class Trainable:
    """A user-defined training, an epoch at a time.

    All methods but :meth:`finish` and :meth:`predictor` are needed, and of :meth:`embed` and :meth:`score` one.
    ``setup`` comes first, also before ``load``. Before ``setup`` and each ``train_epoch`` the global generators of
    Python, NumPy and PyTorch are seeded by the trial's seed and the epoch.

    Attributes:
        space: the searched hyperparameters with their ranges and defaults; trial 0 trains the defaults.
        metrics: the names of all metrics that :meth:`score` returns, the objective by default first; empty if items are
            embedded.
        tolerance: the largest difference of a metric or loss between two trainings with the same seed. 0: none.
        epochs: the planned epochs of this training, ``training.epochs`` of the search file.
    """

    space: ClassVar[Mapping[str, Range]] = {}
    metrics: ClassVar[Sequence[str]] = ()
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

    def score(self, items: Items) -> Mapping[str, Any]:
        """Return the value of each of :attr:`metrics` on ``items``; higher is better, a loss is ``neg_log_loss``.

        A value is a number, or an array or tensor of one number per item, whose mean is the metric. With values per
        item, differences are tested against other test classes too; numbers are only compared between seeds.
        """
        raise NotImplementedError

    @classmethod
    def _own_problems(cls) -> Iterable[str]:
        """Return what an adapter finds wrong with the class, as sentences that follow its import path."""
        return ()

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
        """Return the exported model: a function that maps items to embeddings, or for another task to predictions.

        ``folder`` holds what :meth:`save` wrote, and stays as long as the function is used. There are no training
        items. :func:`holdout.load` needs this method, a search does not.
        """
        raise NotImplementedError


REQUIRED = ("setup", "train_epoch", "save", "load")

EXAMPLE = 'space = {"lr": holdout.Float(1e-4, 1e-1, log=True, default=1e-2)}'
OF_METRICS = 'metrics = ("accuracy", "neg_log_loss")'

STORED = ("labels", "keys")
"""Arrays of a test's files, which no metric can be named after."""


def trainable_class(path: str) -> type[Trainable]:
    """Import the training at the import path ``path``.

    Raises:
        Mistakes: it is none, or incomplete; all that is wrong with it.
    """
    found = load_part(path, kind="trainable", base=Trainable)
    raise_if_any([f"{path} {sentence}" for sentence in _problems(found)])
    return cast(type[Trainable], found)


def _problems(found: type[Trainable]) -> Iterator[str]:
    for name in REQUIRED:
        if getattr(found, name) is getattr(Trainable, name):
            yield f"has no method {name}; define it, see holdout.Trainable."
    yield from _score_problems(found)
    yield from found._own_problems()
    if isinstance(found.tolerance, bool) or not isinstance(found.tolerance, int | float) or not found.tolerance >= 0:
        yield f"has the tolerance {found.tolerance!r}; give a number of at least 0."
    if not isinstance(found.space, Mapping):
        yield f"must declare its space as a mapping to ranges, as in `{EXAMPLE}`; it is {found.space!r:.100}."
        return
    for name, entry in found.space.items():
        if not isinstance(name, str) or not name.isidentifier():
            yield f"has the name {name!r} in its space; give it letters, digits and underscores."
        elif not isinstance(entry, Float | Int | Choice):
            yield f"has the range {name} = {entry!r:.100}; give a holdout.Float, Int or Choice, as in `{EXAMPLE}`."
        elif entry.default is None and not (isinstance(entry, Choice) and None in entry.choices):
            yield f"has no default for {name}, which trial 0 trains; add one, as in `{EXAMPLE}`."


def has_predictor(found: type[Trainable]) -> bool:
    """Return True if the training defines :meth:`Trainable.predictor`."""
    return getattr(found.predictor, "__func__", None) is not getattr(Trainable.predictor, "__func__", None)


def _score_problems(found: type[Trainable]) -> Iterator[str]:
    """Yield what is wrong with the declared metrics, and with the methods that embed or score."""
    names = found.metrics
    if isinstance(names, str) or not isinstance(names, Sequence):
        yield f"must declare its metrics as names, as in `{OF_METRICS}`; they are {names!r:.100}."
        return
    own = [base for base in found.__mro__ if not base.__module__.startswith(OURS)]
    if not names and any("score" in vars(base) for base in own):
        yield f"has a method score and declares no metrics; name all that it returns, as in `{OF_METRICS}`."
    elif not names and found.embed is Trainable.embed:
        yield "has no method embed; define it, or score with its metrics, see holdout.Trainable."
    elif names and found.score is Trainable.score:
        yield "declares metrics and has no method score, which returns them; define it, see holdout.Trainable."
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            yield f"has the metric {name!r:.60}; name it with letters, digits and underscores, as in `{OF_METRICS}`."
        elif name in (*METRICS, *STORED) or is_retrieval(name):
            yield f"has the metric {name}, a name that Holdout uses for something else; rename it, as in my_{name}."
        elif list(names).count(name) > 1:
            yield f"has the metric {name} more than once; keep one."


def seed_epoch(seed: int, epoch: int) -> None:
    """Seed Python, NumPy and PyTorch for an epoch, from 1, of the training with ``seed``; epoch 0 is ``setup``."""
    import torch

    derived = derived_seed(seed, epoch, "own")
    random.seed(derived)
    np.random.seed(derived)
    torch.manual_seed(derived)


def checked_embeddings(found: Any, count: int, method: str = "embed") -> "torch.Tensor":
    """Return what ``embed`` or another ``method`` returned for ``count`` items as a float32 tensor [N, D], detached.

    Raises:
        Mistakes: it is no tensor or array of numbers [N, D].
    """
    import torch

    if not isinstance(found, torch.Tensor | np.ndarray):
        raise Mistakes(f"{method} must return a tensor or an array; it returned {type(found).__name__}.")
    embeddings_ND = torch.as_tensor(found).detach()
    if embeddings_ND.ndim != 2 or not embeddings_ND.shape[1] or len(embeddings_ND) != count:
        shape = " × ".join(map(str, embeddings_ND.shape))
        raise Mistakes(
            f"{method} must return a row for each of {counted(count, 'item')}; it returned {shape or 'a number'}."
        )
    if embeddings_ND.is_complex() or embeddings_ND.dtype == torch.bool:
        raise Mistakes(f"{method} must return real numbers; it returned {embeddings_ND.dtype}.")
    return embeddings_ND.float()


# Trainings that are repeated instead of saved.


class RepeatedTrainable(Trainable):
    """A training that is not saved: :meth:`load` repeats it up to the saved epoch.

    The embeddings or scores of some training items are saved and compared, so that another model than the saved one is
    an error. Subclasses extend :meth:`setup`, and increment :attr:`epoch`.
    """

    probed: ClassVar[int] = 16

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: "torch.device") -> None:
        """Keep the training items."""
        self.train, self.seed, self.epoch = train, seed, 0

    def save(self, folder: Path) -> None:
        """Write the epoch, and embeddings or scores to recognise it by."""
        (folder / "epoch.json").write_text(json.dumps(self.epoch))
        np.save(folder / "probe.npy", self._probe())

    def _probe(self) -> NDArray[Any]:
        if self.metrics:
            some = self._some_items()
            found = checked_scores(self.score(some), type(self), len(some))
            return np.concatenate([values.ravel() for values in found.values.values()])
        items = self.train.items[: self.probed]
        probe: NDArray[Any] = checked_embeddings(self.embed(items), len(items)).double().cpu().numpy()
        return probe

    def _some_items(self) -> Items:
        """Return :attr:`probed` training items, evenly spaced, so that several classes are among them."""
        train, rows = self.train, np.linspace(0, len(self.train) - 1, min(self.probed, len(self.train))).astype(int)
        items = train.items[rows] if isinstance(train.items, np.ndarray) else [train.items[row] for row in rows]
        return Items(items=items, labels=train.labels[rows], class_names=train.class_names)

    def load(self, folder: Path) -> None:
        """Train up to the saved epoch.

        Raises:
            Mistakes: the embeddings or scores are not the saved ones.
        """
        for epoch in range(1, json.loads((folder / "epoch.json").read_text()) + 1):
            seed_epoch(self.seed, epoch)
            self.train_epoch()
        saved, found = np.load(folder / "probe.npy"), self._probe()
        if saved.shape != found.shape or not np.allclose(saved, found, rtol=0, atol=max(self.tolerance, 1e-6)):
            what = "scores" if self.metrics else "embeddings"
            raise Mistakes(
                f"Repeated to epoch {self.epoch}, the training gives other {what}, so its model cannot be restored; "
                "draw random numbers from its seed, or write a holdout.Trainable with save and load."
            )


# A function as a training.

Embed = Callable[[Any], Any]
Score = Callable[[Items], Mapping[str, Any]]


class Report:
    """The callback of a function that trains: ``report(embed, loss=0.3)`` ends an epoch.

    ``embed`` maps items to embeddings and is used until the next report; a training that declares ``metrics`` reports a
    function ``score`` of :class:`Items` instead. The call of the last epoch does not return.

    Attributes:
        epochs: the planned epochs.
        seed: the trial's.
        device: the device to train on.
    """

    def __init__(self, *, epochs: int, seed: int, device: "torch.device", metrics: Sequence[str] = ()) -> None:
        self.epochs, self.seed, self.device = epochs, seed, device
        self._scores = bool(metrics)
        self._goes_on: SimpleQueue[bool] = SimpleQueue()
        self._reports: SimpleQueue[tuple[Embed | Score, Mapping[str, float]] | BaseException | None] = SimpleQueue()

    def __call__(self, embed: Embed | None = None, *, score: Score | None = None, **numbers: float) -> None:
        """End an epoch.

        Args:
            embed: maps items to embeddings.
            score: maps :class:`Items` to the declared metrics, as :meth:`Trainable.score` does.
            numbers: are recorded.

        Raises:
            Mistakes: the function is missing, or is not the one that the training needs.
        """
        given, other = (score, embed) if self._scores else (embed, score)
        if not callable(given) or other is not None:
            raise Mistakes(
                "The training declares metrics, so it reports a function that returns them: report(score=…)."
                if self._scores
                else "The training declares no metrics, so it reports a function that embeds: report(embed)."
            )
        self._reports.put((given, numbers))
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

    def next(self) -> tuple[Embed | Score, Mapping[str, float]] | None:
        """Let the function run until its next report, and return that; None if the function returns."""
        self._goes_on.put(True)
        found = self._reports.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def end(self) -> None:
        """End the function where it waits."""
        self._goes_on.put(False)


class _Ended(BaseException):
    """The training was ended from outside."""


TrainingFunction = Callable[[Mapping[str, Any], Items, Report], None]


class FunctionTrainable(RepeatedTrainable):
    """A function ``train(params, train, report)`` as a training. It runs in a thread that waits between its reports."""

    function: ClassVar[TrainingFunction]

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: "torch.device") -> None:
        """Start the thread, which waits."""
        super().setup(params, train, seed=seed, device=device)
        self._report = report = Report(epochs=self.epochs, seed=seed, device=device, metrics=self.metrics)
        function = type(self).function
        Thread(target=report.run, args=(lambda: function(params, train, report),), daemon=True).start()

    def train_epoch(self) -> Mapping[str, float]:
        """Let the function run until its next report."""
        found = self._report.next()
        if found is None:
            raise Mistakes(
                f"The function returned after {counted(self.epoch, 'report')}, and training.epochs is {self.epochs}; "
                "report once in each of as many epochs as report.epochs says."
            )
        self._reported, numbers = found
        self.epoch += 1
        return numbers

    def embed(self, items: Any) -> Any:
        """Embed items by the function that was reported."""
        return self._reported(items)

    def score(self, items: Items) -> Mapping[str, Any]:
        """Score items by the function that was reported."""
        found: Mapping[str, Any] = self._reported(items)
        return found

    def finish(self) -> None:
        """End the thread."""
        self._report.end()


def trainable(
    *, tolerance: float = 0.0, metrics: Sequence[str] = (), **space: Range
) -> Callable[[TrainingFunction], type[FunctionTrainable]]:
    """Return a decorator that makes a training of a function ``train(params, train, report)``.

    Args:
        tolerance: see :class:`Trainable`.
        metrics: see :class:`Trainable`; the function then calls ``report(score=…)``.
        space: the searched hyperparameters.
    """

    def decorate(function: TrainingFunction) -> type[FunctionTrainable]:
        members = {
            "function": staticmethod(function),
            "space": space,
            "tolerance": tolerance,
            "metrics": metrics,
            "__module__": function.__module__,
            "__doc__": function.__doc__,
        }
        return type(function.__name__, (FunctionTrainable,), members)

    return decorate

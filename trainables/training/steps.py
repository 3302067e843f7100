"""The training step, and the way it is computed: plain, compiled, or replayed as a CUDA graph.

:func:`choose` decides it for each epoch of a GPU from the measured time of a step and the steps that are left. Programs
of ``torch.compile`` are shared by all trainings of the process, graphs belong to one training.

Shapes: B images of a batch, D embedding dimensions.
"""

import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import unwrap
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.common.errors import InvalidInput
from trainables.common.part_tables import is_own
from trainables.data.loading import stream_of
from trainables.losses import LOSSES
from trainables.losses.loss import Loss
from trainables.models.backbones import is_own_network
from trainables.models.embedding import EmbeddingModel, autocast
from trainables.training.spec import TrialSpec

logger = logging.getLogger(__name__)

Mode = Literal["plain", "compile", "graph"]

COMPILING_S = 20.0
"""Seconds of compiling a network and a loss, measured on an H200 (docs/gpu.md)."""
SAVED = 0.3
"""The part of a step's time that compiling saves at least: steps were 1.4 to 2.0 times as fast."""
SMALL_STEP_S = 0.025
"""A step up to this long waits mostly for launches: one of 20 ms was 3.4 times as fast as a graph, one of 37 ms not."""
FEWEST_REPLAYS = 20
"""Steps that repay a capture, which takes as long as a few plain steps."""
WARM_UPS = 3
"""Steps before a capture, on its stream, in which libraries choose kernels and allocate workspaces."""
BACKEND: str | Callable[..., Any] = "inductor"
"""The compiler behind `torch.compile`."""
PROGRAMS = 128
"""Programs that Dynamo keeps of one function: one for each loss, number of proxies, size of batch and frozen state."""


def choose(
    *, device: str, step_s: float | None, left: int, compiling_s: float, excluded: Collection[Mode] = ()
) -> tuple[Mode, str]:
    """Return how to compute the steps that are left, and the reason in words.

    Args:
        device: the device's type.
        step_s: the seconds of a plain step; None before one was measured.
        left: the steps that are left, those expected of later trials included.
        compiling_s: the seconds that compiling takes; 0 if this process has the programs already.
        excluded: modes that cannot be used, or have failed.
    """
    if device != "cuda":
        return "plain", "steps on a CPU gain nothing"
    if step_s is None:
        return "plain", "the first epoch measures a step"
    measured = f"a step takes {1000 * step_s:.1f} ms and about {left} are left"
    if step_s <= SMALL_STEP_S and "graph" not in excluded and left >= FEWEST_REPLAYS:
        return "graph", measured
    saved_s = SAVED * left * step_s
    if "compile" not in excluded and saved_s > compiling_s:
        return "compile", f"{measured}, which saves {saved_s:.0f} s for {compiling_s:.0f} s of compiling"
    return "plain", measured


@dataclass
class Known:
    """What this process knows about steps of one kind.

    ``step_s`` is the time of a plain one, ``taken`` the number of steps of all trainings: as many are expected of later
    ones. ``compiled`` is True once there are programs, and ``failed`` are the modes that failed for a loss.
    """

    step_s: float | None = None
    taken: int = 0
    compiled: bool = False
    failed: set[tuple[str, Mode]] = field(default_factory=set)


KNOWN: defaultdict[Hashable, Known] = defaultdict(Known)
"""By network, sizes and precision."""


class Steps:
    """The steps of one training: forward, loss, backward, clipping and optimizer, computed by ``mode``."""

    def __init__(
        self, spec: TrialSpec, model: EmbeddingModel, loss: Loss, optimizer: Optimizer, device: torch.device
    ) -> None:
        config = spec.training
        self._spec, self._config, self._device = spec, config, device
        self._model, self._loss, self._optimizer = model, loss, optimizer
        self._network: Callable[[Tensor], Tensor] = model
        self._objective: Callable[[Tensor, Tensor], Tensor] = loss
        self._graphs: GraphedSteps | None = None
        self._variant: Hashable = None
        self._known = KNOWN[spec.model, config.image_size, config.batch_size, config.precision]
        self._begun, self._count, self._untimed = 0.0, 0, 0
        self.mode: Mode = "plain"

    def begin_epoch(self, left: int, pairs: int, *, frozen: bool) -> int:
        """Choose how to compute the ``left`` steps of this training, and return the loss's ``most_pairs``.

        That is the most ``pairs`` of a batch of this epoch. Programs and graphs have sizes, and serve several epochs
        with a power of two. ``frozen`` says that the backbone does not learn.
        """
        self._begun, self._count, self._untimed = time.perf_counter(), 0, 0
        if self._config.compile == "auto" and self.mode == "plain":
            known, loss = self._known, self._spec.loss
            excluded: set[Mode] = {mode for failed, mode in known.failed if failed == loss}
            if self._config.deterministic:
                excluded = {"compile", "graph"}
            elif is_own(loss) or (is_own_network(self._spec.model.backbone) and not self._model.on_vectors):
                excluded.add("graph")  # it would not run their Python again
            mode, reason = choose(
                device=self._device.type, step_s=known.step_s, left=left + known.taken,
                compiling_s=0.0 if known.compiled else COMPILING_S, excluded=excluded,
            )  # fmt: skip
            if mode != "plain":
                logger.info("Steps by %s: %s.", mode, reason)
            self.use(mode)
        if self.mode != "plain":
            pairs = 1 << (pairs - 1).bit_length()
        if self.mode == "graph" and (self._graphs is None or self._variant != (frozen, pairs)):
            self._graphs = GraphedSteps(self._step, self._optimizer, self._loss, self._device)
            self._variant = frozen, pairs
        return pairs

    def use(self, mode: Mode) -> None:
        """Compute the steps from the next epoch on by ``mode``, on a GPU."""
        if mode == "compile":
            self._network = compiled(self._model, self._spec.images.cache)
            if self._spec.loss in LOSSES.rows:
                numbers_as_tensors(self._loss, self._device)
            self._objective = compiled(self._loss, self._spec.images.cache)
        self.mode = mode

    def end_epoch(self) -> None:
        """Remember the time of a plain step; call it once the device has finished the steps."""
        self._known.taken += self._count
        if self.mode == "plain" and self._device.type == "cuda" and self._count > self._untimed:
            self._known.step_s = (time.perf_counter() - self._begun) / (self._count - self._untimed)
        self._known.compiled |= self.mode == "compile"

    def take(self, images: Tensor, labels_B: Tensor) -> Tensor:
        """Take one optimizer step and return the detached loss."""
        self._count += 1
        if self._count == WARM_UPS + 1:
            self._begun, self._untimed = time.perf_counter(), WARM_UPS
        try:
            if self._graphs is not None:
                return self._graphs.take(images, labels_B)
            return self._step(images, labels_B)
        except Exception as error:
            if self._config.compile != "auto" or not self._gives_up(error):
                raise
        return self._step(images, labels_B)

    def _gives_up(self, error: Exception) -> bool:
        """Return to plain steps if ``error`` is one of compiling or capturing, and return True then."""
        if self.mode == "plain" or (
            self.mode == "compile" and not isinstance(error, torch._dynamo.exc.TorchDynamoException)
        ):
            return False
        (text, *_) = str(error).splitlines() or [""]
        logger.warning(
            "Steps by %s fail for the loss %s and the network %s, so they stay plain (%s: %s).",
            self.mode, self._spec.loss, self._spec.model.backbone, type(error).__name__, text,
        )  # fmt: skip
        self._known.failed.add((self._spec.loss, self.mode))
        self.mode, self._network, self._objective = "plain", self._model, self._loss
        self._begun, self._untimed = time.perf_counter(), self._count
        if self._graphs is not None:
            self._graphs.end()
            self._graphs = None
        return True

    def _step(self, images: Tensor, labels_B: Tensor) -> Tensor:
        with autocast(self._device, self._config.precision):
            embeddings_BD = self._network(images)
        loss = self._objective(embeddings_BD, labels_B)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise InvalidInput(
                f"The loss {self._spec.loss} must return a scalar tensor that depends on the embeddings for any batch; "
                f"it returned {loss!r:.100}."
            )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self._count == 1:
            learning = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
            if learning and all(parameter.grad is None for parameter in learning):
                raise InvalidInput(
                    f"The loss {self._spec.loss} gives the network no gradient; do not detach embeddings."
                )
        if self._config.clip_grad is not None:
            nn.utils.clip_grad_value_((*self._model.parameters(), *self._loss.parameters()), self._config.clip_grad)
        self._optimizer.step()
        return loss.detach()


# Compiled steps.


def compiled(module: nn.Module, cache: str) -> Callable[..., Any]:
    """Return ``module`` compiled in its first call; equal modules share their programs, and a node inductor's files."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(cache, "inductor")))
    torch._dynamo.config.recompile_limit = PROGRAMS
    # A program for each size of batch: one for all sizes would depend on which of them came first, and a resumed
    # training would compute other last bits.
    return torch.compile(module, backend=BACKEND, dynamic=False)


def numbers_as_tensors(loss: Loss, device: torch.device) -> None:
    """Make the real hyperparameters of a loss tensors, so that a program does not depend on their values."""
    for name, value in list(vars(loss).items()):
        if isinstance(value, float):
            setattr(loss, name, torch.tensor(value, dtype=torch.float64, device=device))


# Captured steps.


class NotCapturable(RuntimeError):
    """An operation for which the host waits, or that uses memory of the host."""


WAITS = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount",
    "equal",
}  # fmt: skip


class RaisesOnWaits(TorchDispatchMode):
    """Raises :class:`NotCapturable` before a capture would fail, which may leave random numbers unusable."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        waits = name in WAITS and any(tensor.is_cuda for tensor in tensors)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            indices = [one for one in args[1] if one is not None]
            waits = args[0].is_cuda and any(one.dtype is torch.bool or not one.is_cuda for one in indices)
        elif name == "repeat_interleave":
            waits = kwargs.get("output_size") is None and tensors[0].is_cuda
        elif name == "copy_":
            waits = args[0].is_cuda is not args[1].is_cuda
        elif name == "_to_copy" and (device := kwargs.get("device")) is not None:
            waits = (torch.device(device).type != "cpu") is not args[0].is_cuda
        if waits:
            raise NotCapturable(f"the host waits for {name}")
        return func(*args, **kwargs)


class Graph(NamedTuple):
    """A captured step with its inputs, the loss, and what the loss counted."""

    graph: torch.cuda.CUDAGraph
    images: Tensor
    labels_B: Tensor
    loss: Tensor
    used: Any


class GraphedSteps:
    """Steps as CUDA graphs, one for each size of batch, after :data:`WARM_UPS` steps on the stream of the capture.

    A batch is trained once: a capture executes nothing, and is followed by its replay. Learning rates and the counts
    of the optimizer are tensors on the device meanwhile.
    """

    def __init__(
        self, step: Callable[[Tensor, Tensor], Tensor], optimizer: Optimizer, loss: Loss, device: torch.device
    ) -> None:
        self._step, self._optimizer, self._loss = step, optimizer, loss
        self._stream = stream_of("captures", device)
        self._pool: Any = None
        self._rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self._set: list[float] = []
        self._warm: Counter[torch.Size] = Counter()
        self._graphs: dict[torch.Size, Graph] = {}
        self._count_on(device)

    def take(self, images: Tensor, labels_B: Tensor) -> Tensor:
        """Take one step and return the detached loss."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        if rates != self._set:
            for tensor, rate in zip(self._rates, rates, strict=True):
                tensor.fill_(rate)
            self._set = rates
        size = images.shape
        if size not in self._graphs and self._warm[size] < WARM_UPS:
            self._warm[size] += 1
            return self._warm_up(images, labels_B)
        if size not in self._graphs:
            self._graphs[size] = self._captured(images, labels_B)
        graph = self._graphs[size]
        graph.images.copy_(images)
        graph.labels_B.copy_(labels_B)
        graph.graph.replay()
        used = graph.used
        if used is not None and isinstance(used.count, Tensor):  # the next step overwrites its memory
            used = replace(used, count=used.count.clone())
        self._loss.used = used
        return graph.loss.clone()

    def _warm_up(self, images: Tensor, labels_B: Tensor) -> Tensor:
        current = torch.cuda.current_stream(images.device)
        self._stream.wait_stream(current)
        for tensor in (images, labels_B):
            tensor.record_stream(self._stream)
        try:
            with torch.cuda.stream(self._stream), self._capturable(), RaisesOnWaits():
                loss = self._step(images, labels_B)
        finally:
            current.wait_stream(self._stream)
        used = self._loss.used
        made = [tensor for state in self._optimizer.state.values() for tensor in state.values()]
        for tensor in (loss, used and used.count, *made):  # memory of the other stream that this one uses
            if isinstance(tensor, Tensor):
                tensor.record_stream(current)
        return loss

    def _captured(self, images: Tensor, labels_B: Tensor) -> Graph:
        graph, images, labels_B = torch.cuda.CUDAGraph(), images.clone(), labels_B.clone()
        self._optimizer.zero_grad(set_to_none=True)  # the graph makes gradients in its own memory
        # Other threads, such as that which prepares batches, may allocate memory meanwhile.
        with (
            self._capturable(),
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
        ):
            loss = self._step(images, labels_B)
        self._pool = self._pool or graph.pool()
        return Graph(graph, images, labels_B, loss, self._loss.used)

    @contextmanager
    def _capturable(self) -> Iterator[None]:
        """Let the optimizer read the learning rates from tensors."""
        groups = self._optimizer.param_groups
        before = [group["lr"] for group in groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group |= {"lr": rate, "capturable": True}
        try:
            yield
        finally:
            for group, rate in zip(groups, before, strict=True):
                group |= {"lr": rate, "capturable": False}

    def _count_on(self, device: torch.device) -> None:
        for state in self._optimizer.state.values():
            state["step"] = state["step"].to(device)

    def end(self) -> None:
        """Return the counts of the optimizer to the CPU, where plain steps read them."""
        self._count_on(torch.device("cpu"))


# Optimizers. torch's import ``torch._dynamo`` when they are constructed and at every step, only to mark themselves as
# not compiled: two seconds of every worker's start, and 160 MB. No optimizer is compiled here, so ``Adam`` and
# ``AdamW`` use the methods without those wrappers, and a method that has none unchanged.


class _NotCompiled(Optimizer):
    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class Adam(_NotCompiled, torch.optim.Adam):
    """Adam (Kingma and Ba, 2015)."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(_NotCompiled, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))

"""CUDA graphs on the simulated GPU: operations are recorded in a capture, which changes nothing, and computed again.

A replay reads and writes the memory of the capture. What the host gave to an operation keeps its value.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from support.simulated_gpu.streams import STATE, Stream, current, of_autograd
from support.simulated_gpu.tensors import NO_ACCESS, Sim, _key, _simulated, _tensors, mapped


class Graph:
    """What ``torch.cuda.CUDAGraph`` does here."""

    def __init__(self) -> None:
        self._operations: list[tuple[Any, Any, Any, list[Sim]]] = []
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._made: dict[int, Sim] = {}
        self._thread: threading.Thread | None = None

    def takes_part(self) -> bool:
        """Return True if this thread captures, or computes gradients for the one that does."""
        return threading.current_thread() is self._thread or of_autograd()

    def before(self, written: list[Sim]) -> None:
        for tensor in written:
            if (key := _key(tensor.values_)) not in self._made and key not in self._before:
                storage = tensor.values_.untyped_storage()
                self._before[key] = storage, storage.clone()

    def record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given = {id(tensor) for tensor in _tensors((args, kwargs))}
        known = {_key(tensor.values_) for tensor in _tensors((args, kwargs)) if isinstance(tensor, Sim)}
        fresh = [
            tensor for tensor in _tensors(out)
            if isinstance(tensor, Sim) and id(tensor) not in given and _key(tensor.values_) not in known
        ]  # fmt: skip
        self._made |= {_key(tensor.values_): tensor for tensor in fresh}

        def frozen(leaf: Any) -> Any:
            return leaf.clone() if isinstance(leaf, torch.Tensor) and not isinstance(leaf, Sim) else leaf

        self._operations.append((func, *mapped(frozen, (args, kwargs)), fresh))

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        random, self._thread, STATE.capture = STATE.rng, threading.current_thread(), self
        try:
            yield
        finally:
            STATE.capture, STATE.rng = None, random
            for storage, content in self._before.values():
                storage.copy_(content)

    def replay(self) -> None:
        assert self._operations, "nothing was captured"
        for func, args, kwargs, fresh in self._operations:
            out = _simulated(func, args, dict(kwargs))
            for tensor in fresh:  # memory of a graph is freed after its last replay
                tensor.memory_.recorded.add(current())
            if func._schema.name.removeprefix("aten::") in NO_ACCESS:
                continue
            results = {id(tensor) for tensor in _tensors((args, kwargs))}
            found = [tensor for tensor in _tensors(out) if isinstance(tensor, Sim) and id(tensor) not in results]
            for old, new in zip(fresh, found):
                old.memory_.use("replay", writes=True)
                old.values_.copy_(new.values_)

    def pool(self) -> int:
        return id(self)


@contextlib.contextmanager
def graph(graph: Graph, *, pool: Any = None, stream: Stream, capture_error_mode: str = "global") -> Iterator[None]:
    assert capture_error_mode == "thread_local", "another thread prepares batches"
    before = current()
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(stream), graph.capturing():
            stream.wait_stream(before)
            yield
    finally:
        before.wait_stream(stream)

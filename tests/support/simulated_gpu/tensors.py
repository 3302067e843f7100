"""Tensors on a simulated GPU: each operation is checked, counted, and computed on the CPU."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from support.simulated_gpu.streams import CPU, LOCK, STATE, Memory, SimulationError, line, note
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

# Autograd sees this name as the device of the tensors: for "cuda" it would ask the driver for streams.
NAME = "simulated"

# Operations by what is special about them on CUDA.
WAITS = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount",
    "equal",
}  # fmt: skip
UNORDERED = {
    "index_add", "index_add_", "scatter_add", "scatter_add_", "put_", "cumsum", "embedding_dense_backward",
    "_embedding_bag_dense_backward", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward",
    "replication_pad2d_backward", "reflection_pad2d_backward", "max_pool2d_with_indices_backward",
    "upsample_bilinear2d_backward",
}  # fmt: skip
NOT_DETERMINISTIC = {
    "put_", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward", "reflection_pad2d_backward",
    "_embedding_bag_dense_backward",
}  # fmt: skip
"""Those without a deterministic kernel (the list at :func:`torch.use_deterministic_algorithms`)."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
MIXED = {*INDEXING, "copy_", "_to_copy", "_foreach_copy_"}
SCALARS = {"where", "masked_fill", "masked_fill_", "fill_"}
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "baddbmm_", "addmv", "mv", "dot"}
NO_ACCESS = {
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach", "alias", "view",
}  # fmt: skip


class Sim(torch.Tensor):
    """A tensor on the simulated GPU: its values on the CPU, and its memory."""

    values_: torch.Tensor
    memory_: Memory

    @staticmethod
    def __new__(cls, values: torch.Tensor, memory: Memory) -> "Sim":
        made: Sim = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        made.values_, made.memory_ = values, memory
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Memory]:
        return ["values_"], self.memory_

    @staticmethod
    def __tensor_unflatten__(parts: Any, memory: Memory, size: Any, stride: Any) -> "Sim":
        return Sim(parts["values_"], memory)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.values_.untyped_storage()

    def data_ptr(self) -> int:
        return self.values_.data_ptr()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return simulated(func, args, kwargs or {})


class Mode(TorchDispatchMode):
    """Lets operations without a tensor on the device be seen: those that make one, or copy to it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Prevent a wrapper that imports torch's compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return simulated(func, args, kwargs or {})


def _tensors(values: Any) -> list[torch.Tensor]:
    """Return the tensors in arguments or results, several times faster than by PyTorch's trees."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        return []
    return [tensor for value in values for tensor in _tensors(value)]


def mapped(function: Callable[[Any], Any], values: Any) -> Any:
    """Return arguments or results with ``function`` applied to each leaf."""
    if isinstance(values, (tuple, list)):
        return type(values)([mapped(function, value) for value in values])
    if isinstance(values, dict):
        return {name: mapped(function, value) for name, value in values.items()}
    return function(values)


def simulated(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Check, count and compute an operation, and record it in a capture; return what it returns, on its device."""
    written = [tensor for tensor in _written(func, args, kwargs) if isinstance(tensor, Sim)]
    if (capture := STATE.capture) is None or not capture.takes_part():
        return _simulated(func, args, kwargs)
    capture.before(written)
    out = _simulated(func, args, dict(kwargs))
    capture.record(func, args, kwargs, out)
    return out


def _simulated(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func._schema.name.removeprefix("aten::")
    tensors = _tensors((args, kwargs))
    sims = [tensor for tensor in tensors if isinstance(tensor, Sim)]
    plain = [tensor for tensor in tensors if not isinstance(tensor, Sim)]
    if name == "is_pinned":
        return _is_pinned(tensors[0])
    if name == "_pin_memory":
        return _pin(_run(torch.ops.aten.clone.default, tensors[:1], {}, False))
    asked = kwargs.get("device")
    on_device = bool(sims) if asked is None else torch.device(asked).type in ("cuda", NAME)
    moves = name == "_to_copy" and on_device is not bool(sims)
    later = bool(kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,)))
    written = _written(func, args, kwargs)
    _check(name, func, args, sims, plain)
    _note(name, args, kwargs, sims, plain, moves, later)
    for tensor in sims:
        if name not in NO_ACCESS:
            tensor.memory_.use(name, writes=any(tensor is one for one in written))

    back = {id(tensor.values_): tensor for tensor in sims}
    memories = {_key(tensor.values_): tensor.memory_ for tensor in sims}
    real_args, real_kwargs = mapped(lambda leaf: leaf.values_ if isinstance(leaf, Sim) else leaf, (args, kwargs))
    pin = real_kwargs.pop("pin_memory", None)
    if asked is not None:
        real_kwargs["device"] = CPU
    if name == "_to_copy" and on_device and not moves and real_args[0].dtype is kwargs.get("dtype", real_args[0].dtype):
        out = real_args[0].detach()  # nothing to copy
    else:
        out = _run(func, real_args, real_kwargs, on_device)

    def wrapped(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in back:
            return back[id(leaf)]
        if not on_device or any(leaf is tensor for tensor in plain):
            return _pin(leaf) if pin else leaf
        if (key := _key(leaf)) not in memories:
            memories[key] = Memory(leaf.untyped_storage().nbytes())
            if name not in NO_ACCESS:
                memories[key].use(name, writes=True)
        return Sim(leaf, memories[key])

    return mapped(wrapped, out)


def _run(func: Any, args: Any, kwargs: Any, on_device: bool) -> Any:
    """Compute an operation on the CPU; the device has its own random numbers."""
    with _disable_current_modes():
        if not (on_device and torch.Tag.nondeterministic_seeded in func.tags):
            return func(*args, **kwargs)
        with LOCK, torch.random.fork_rng(devices=[], device_type="cpu"):
            torch.default_generator.set_state(STATE.rng)
            try:
                return func(*args, **kwargs)
            finally:
                STATE.rng = torch.default_generator.get_state()


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    return _tensors([args[at] if at < len(args) else kwargs.get(name) for at, name in _changes(func)])


@functools.cache
def _changes(func: Any) -> list[tuple[int, str]]:
    arguments = enumerate(func._schema.arguments)
    return [(at, one.name) for at, one in arguments if one.alias_info is not None and one.alias_info.is_write]


def _check(name: str, func: Any, args: Any, sims: list[Sim], plain: list[torch.Tensor]) -> None:
    """Raise an error if CUDA has no such operation on these devices and types."""
    if sims and name in PRODUCTS and not (sims[0].is_floating_point() or sims[0].is_complex()):
        raise SimulationError(f'"{name}_cuda" not implemented for {sims[0].dtype}, at {line()}')
    if sims and torch.are_deterministic_algorithms_enabled() and name in NOT_DETERMINISTIC:
        raise RuntimeError(f"{name} does not have a deterministic implementation, at {line()}")
    if not sims or not plain:
        return
    if name in INDEXING and not isinstance(args[0], Sim):
        raise SimulationError(f"{name} at {line()}: the indices are on the GPU, and what they index is on the CPU")
    scalars = all(tensor.dim() == 0 for tensor in plain)
    if name in MIXED or (scalars and (torch.Tag.pointwise in func.tags or name in SCALARS)):
        return
    raise SimulationError(f"{name} at {line()}: Expected all tensors to be on the same device, cuda:0 and cpu")


def _note(
    name: str, args: Any, kwargs: Any, sims: list[Sim], plain: list[torch.Tensor], moves: bool, later: bool
) -> None:
    """Count what makes the host wait, copies between the devices, and sums in no fixed order."""
    if moves or (name == "copy_" and isinstance(args[0], Sim) is not isinstance(args[1], Sim)):
        later = later and bool(plain) and _is_pinned(plain[0])
        if isinstance(args[0 if moves else 1], Sim):
            note("D2H" if later else "sync", "copy to the CPU")
        else:
            note("H2D" if later else "pageable H2D", "copy to the GPU")
    if not sims:
        return
    if name in WAITS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        note("sync", name)
    if name in INDEXING:
        for indices in _tensors(args[1]):
            if not isinstance(indices, Sim):
                note("index H2D", name)
            elif indices.dtype is torch.bool:
                note("sync", f"{name} by a mask")
    ordered = torch.are_deterministic_algorithms_enabled()
    if not ordered and sims[0].is_floating_point() and (name in UNORDERED or (name in INDEXING and True in args[3:4])):
        note("unordered", name)


PINNED: dict[int, StorageWeakRef] = {}


def _key(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _is_pinned(tensor: torch.Tensor) -> bool:
    found = None if isinstance(tensor, Sim) else PINNED.get(_key(tensor))
    return found is not None and not found.expired()


def _pin(tensor: torch.Tensor) -> torch.Tensor:
    for key in [key for key, storage in list(PINNED.items()) if storage.expired()]:
        PINNED.pop(key, None)
    PINNED[_key(tensor)] = StorageWeakRef(tensor.untyped_storage())
    return tensor

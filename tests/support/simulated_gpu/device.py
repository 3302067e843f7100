"""``torch.cuda`` of the simulated GPU, as far as the project uses it, and what autocast casts there."""

import contextlib
import threading
import types
import warnings
from typing import Any

import torch
from support.simulated_gpu.graphs import Graph, graph
from support.simulated_gpu.streams import CUDA, DEFAULT, HELD, LOCAL, POOL, RESERVED, STATE, Event, Stream, current
from support.simulated_gpu.tensors import NAME, Mode, Sim
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten


@contextlib.contextmanager
def _on_stream(stream: Stream | None) -> Any:
    before = current()
    _use(stream or before)
    try:
        yield
    finally:
        _use(before)


def _use(stream: Stream) -> None:
    LOCAL.stream = stream
    if threading.current_thread() is threading.main_thread():
        STATE.main = stream


def _seed(seed: int) -> None:
    STATE.rng = torch.Generator().manual_seed(int(seed)).get_state()


def _record_stream(tensor: torch.Tensor, stream: Stream) -> None:
    assert isinstance(tensor, Sim), "record_stream of a tensor on the CPU"
    tensor.memory_.recorded.add(stream)


def _set_debug(mode: str) -> None:
    STATE.debug = mode
    if not STATE.warned and mode != "default":
        STATE.warned = True
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=2)


def _stream(device: Any = None, priority: int = 0) -> Stream:
    """Return the next of 32 streams, as PyTorch does."""
    STATE.streams += 1
    return POOL[STATE.streams % len(POOL)]


PROPERTIES = types.SimpleNamespace(name="Simulated", total_memory=STATE.total, major=9, minor=0)
PATCHES: dict[str, Any] = {
    "_lazy_init": lambda: None, "is_initialized": lambda: True, "is_available": lambda: True,
    "device_count": lambda: 1, "current_device": lambda: 0,
    "_exchange_device": lambda number: 0, "_maybe_exchange_device": lambda number: 0,
    "_is_in_bad_fork": lambda: False, "CUDAGraph": Graph, "graph": graph,
    "is_current_stream_capturing": lambda: STATE.capture is not None and STATE.capture.takes_part(),
    "get_device_properties": lambda device=None: PROPERTIES, "get_device_name": lambda device=None: PROPERTIES.name,
    "get_device_capability": lambda device=None: STATE.capability,
    "is_bf16_supported": lambda including_emulation=True: including_emulation or STATE.capability >= (8, 0),
    "mem_get_info": lambda device=None: (STATE.limit - RESERVED.total(), STATE.total),
    "empty_cache": lambda: [RESERVED.clear(), RESERVED.update(HELD)],
    "memory_allocated": lambda device=None: HELD.total(), "memory_reserved": lambda device=None: RESERVED.total(),
    "max_memory_reserved": lambda device=None: STATE.peak,
    "reset_peak_memory_stats": lambda device=None: setattr(STATE, "peak", RESERVED.total()),
    "set_sync_debug_mode": _set_debug,
    "Stream": _stream, "Event": Event, "current_stream": current, "default_stream": lambda device=None: DEFAULT,
    "stream": _on_stream, "synchronize": lambda device=None: DEFAULT.synchronize(),
    "manual_seed": _seed, "manual_seed_all": _seed,
    "get_rng_state": lambda device=None: STATE.rng.clone(),
    "set_rng_state": lambda state, device=None: setattr(STATE, "rng", state.clone()),
}  # fmt: skip

# The operations used here that autocast casts on CUDA.
TO_BFLOAT16 = ("conv2d", "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
TO_FLOAT32 = (
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "exp", "log", "softmax.int", "log_softmax.int", "layer_norm",
    "norm.ScalarOpt_dim",
)  # fmt: skip
LIBRARY, FALLBACK = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL", "AutocastPrivateUse1")


class _Module(_DummyBackendModule):
    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.cuda.get_rng_state(device)

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.cuda.set_rng_state(state, device)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def _autocast(operation: str, dtype: torch.dtype | None) -> None:
    packet, _, overload = operation.partition(".")
    func = getattr(getattr(aten, packet), overload or "default")

    def cast(leaf: Any) -> Any:
        to = dtype or torch.get_autocast_dtype(NAME)
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda and leaf.is_floating_point() and leaf.dtype != torch.float64:
            return leaf.to(to)
        return leaf

    def implementation(*args: Any, **kwargs: Any) -> Any:
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        with torch._C._ExcludeDispatchKeyGuard(key):
            return func(*tree_map(cast, args), **tree_map(cast, kwargs))

    LIBRARY.impl(operation, implementation, "AutocastPrivateUse1")


def install() -> None:
    """Simulate a GPU in this process and the threads that it starts; there is no way back."""
    if STATE.on:
        return
    STATE.on = True
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    torch._C._ensureCUDADeviceGuardSet()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device="cuda") makes it on the CPU and moves it
    _seed(0)
    device = torch.Tensor.device

    def device_of(tensor: torch.Tensor) -> torch.device:
        return CUDA if (found := device.__get__(tensor)).type == NAME else found

    tensors: Any = torch.Tensor
    tensors.device, tensors.record_stream = property(device_of), _record_stream
    tensors.is_cuda = property(lambda tensor: device_of(tensor) == CUDA)
    for name, value in PATCHES.items():
        for module in (torch.cuda, torch.cuda.memory, torch.cuda.random):
            if hasattr(module, name):
                setattr(module, name, value)
    FALLBACK.fallback(torch.library.fallthrough_kernel)
    for operations, dtype in ((TO_BFLOAT16, None), (TO_FLOAT32, torch.float32)):
        for operation in operations:
            _autocast(operation, dtype)
    for supported in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        supported.append(Sim)  # many in one operation, as on CUDA
    torch.inference_mode = lambda mode=True: torch.no_grad()  # vmap fails on wrapped tensors in inference mode
    start, run = torch.autocast.__init__, threading.Thread.run

    def autocast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        start(self, NAME if device_type == "cuda" else device_type, *args, **kwargs)

    def with_mode(thread: threading.Thread) -> None:
        with Mode():
            run(thread)

    torch.autocast.__init__ = autocast  # type: ignore[method-assign]
    threading.Thread.run = with_mode  # type: ignore[method-assign]
    Mode().__enter__()

"""A simulated GPU: tensors with ``device="cuda:0"``, whose values PyTorch computes on the CPU.

After :func:`install`, or with ``pytest -p support.simulated_gpu``, ``torch.cuda.is_available()`` is True for the rest
of the process, and whole trainings run as on a GPU. Every operation is checked, and raises :class:`SimulationError`, or
PyTorch's own error, where a GPU would fail or compute something else:

* tensors of one operation are on both devices (0-dim CPU tensors in pointwise operations, and CPU indices, may be);
* there is no CUDA kernel for the type (matrix products of integers), or no deterministic one where it is required;
* memory is used while another stream still writes it, or written while another stream still reads it;
* more memory is allocated than the GPU has.

``FREED_TOO_EARLY`` lists memory that was freed while another stream could still use it (``record_stream`` is missing).
``SEEN`` counts, by operation and line of the project, what makes the host wait and what adds numbers in no fixed order.

``streams`` has the order of operations and the memory, ``tensors`` the operations, ``graphs`` CUDA graphs, and
``device`` replaces ``torch.cuda``. Not simulated: rounding, time, errors inside a kernel, NCCL, tensors on a second
device, fused attention, fragmentation of memory.
"""

from typing import Any

from support.simulated_gpu.device import install
from support.simulated_gpu.streams import FREED_TOO_EARLY, HELD, RESERVED, SEEN, STATE, SimulationError

__all__ = ["FREED_TOO_EARLY", "HELD", "RESERVED", "SEEN", "STATE", "SimulationError", "install"]


def pytest_configure(config: Any) -> None:
    """Simulate a GPU in the whole test process, and add the fixtures of its tests."""
    install()
    config.pluginmanager.import_plugin("support.simulated_gpu.fixtures")

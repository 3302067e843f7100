"""Every kind of fault that the simulated GPU claims to find is made here on purpose, next to the correct program."""

import warnings
from collections.abc import Callable

import pytest
import torch
from support.simulated_gpu import FREED_TOO_EARLY, SEEN, SimulationError
from support.simulated_gpu.streams import ROOT

pytestmark = pytest.mark.simulated_gpu


def on_gpu(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda")


@pytest.mark.parametrize("mixed", [
    lambda: on_gpu(3, 3) @ torch.ones(3, 3),
    lambda: torch.ones(3)[torch.tensor([0], device="cuda")],
])  # fmt: skip
def test_an_operation_on_two_devices_fails(mixed: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(SimulationError, match=r"same device|indices are on the GPU"):
        mixed()


def test_memory_is_not_used_before_another_stream_is_done_with_it() -> None:
    """An event orders only what was queued before it."""
    stream, tensor = torch.cuda.Stream(), on_gpu(3)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        event = stream.record_event()
        made = tensor * 2
    torch.cuda.current_stream().wait_event(event)
    for use in (lambda: made + 1, tensor.zero_):
        with pytest.raises(SimulationError, match="races"):
            use()
    torch.cuda.current_stream().wait_event(stream.record_event())
    made.record_stream(torch.cuda.current_stream())
    assert (made + 1).sum().item() == 9
    tensor.zero_()


def test_memory_that_another_stream_uses_is_freed_too_early_unless_that_is_recorded() -> None:
    user = torch.cuda.Stream()
    for is_recorded, expected in ((False, 1), (True, 0)):
        tensor = on_gpu(3)
        user.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(user):
            tensor + 1
        if is_recorded:
            tensor.record_stream(user)
        del tensor
        assert len(FREED_TOO_EARLY) == expected
        FREED_TOO_EARLY.clear()


@pytest.mark.parametrize("waits", [
    lambda: on_gpu(3).sum().item(),
    lambda: on_gpu(3).nonzero(),
    lambda: on_gpu(3)[on_gpu(3) > 0],
    lambda: on_gpu(3)[torch.tensor([0])],
    lambda: torch.ones(3).to("cuda", non_blocking=True),  # not pinned: the copy waits whatever was asked
    lambda: on_gpu(3).cpu(),
])  # fmt: skip
def test_what_makes_the_host_wait_is_found(waits: Callable[[], object]) -> None:
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchronizing"):
            waits()
        torch.ones(3).pin_memory().to("cuda", non_blocking=True) * 2
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_waits_and_sums_in_no_fixed_order_are_counted_by_line() -> None:
    code = "tensor = make()\ntensor.sum().item()\ntensor.index_add_(0, tensor.long(), tensor * 2)\n"
    before = SEEN.copy()
    exec(compile(code, f"{ROOT}trainables/planted.py", "exec"), {"make": lambda: on_gpu(3)})
    found = {(kind, line) for kind, _, line in SEEN - before}
    assert {("sync", "trainables/planted.py:2"), ("unordered", "trainables/planted.py:3")} <= found

"""The program ``python -m benchmarks.gpu [PART …]``; each part prints its tables when they are complete."""

import sys
from collections.abc import Callable

import torch
from rich.console import Console

from benchmarks.gpu.feeding import feeding
from benchmarks.gpu.neighbours import neighbours
from benchmarks.gpu.networks import networks
from benchmarks.gpu.sizes import Sizes, sizes_for
from benchmarks.timing import best_device

PARTS: dict[str, Callable[[Console, Sizes, torch.device], None]] = {
    "neighbours": neighbours,
    "feeding": feeding,
    "networks": networks,
}


def main(*names: str) -> None:
    """Run all parts, or those named."""
    if unknown := set(names) - PARTS.keys():
        sys.exit(f"There is no part {', '.join(sorted(unknown))}; name some of {', '.join(PARTS)}.")
    device = best_device()
    console = Console(width=120)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; float32 convolutions may take TF32")
    for name in names or PARTS:
        PARTS[name](console, sizes_for(device), device)


if __name__ == "__main__":
    main(*sys.argv[1:])

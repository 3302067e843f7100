"""Kernels that a loss would launch on a GPU, counted on a CPU: python -m benchmarks.launches

A small step takes as long as its launches. A view or an allocation launches nothing, most other operations of forward
and backward launch one kernel, and those of ``KERNELS`` more.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.losses import IMAGES_PER_CLASS, ROWS, C, D, trained
from trainables.losses import LOSSES
from trainables.training.steps import WAITS

BATCH = 180
KERNELS = {
    "logsumexp": 9, "masked_fill": 2, "scatter": 2, "scatter_add": 2, "eye": 2, "nll_loss_backward": 2, "sort": 3,
    "nonzero": 4, "nonzero_static": 4, "index_put": 9, "_unique2": 8, "unique_dim": 8, "repeat_interleave": 3,
}  # fmt: skip
"""Kernels of an operation, from PyTorch's source: a copy before what is done in place, the steps of a log of sums,
a sort before the gradients of an indexing are added. Those of sorting and compacting are estimates."""


class Launches(TorchDispatchMode):
    """Counter of kernels and of what makes the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        masks = name == "index" and sum(one is not None and one.dtype is torch.bool for one in args[1])
        self.waits += masks or name in WAITS
        if not (func.is_view or "empty" in name or name in ("detach", "_unsafe_view")):
            self.kernels += masks * KERNELS["nonzero"] + KERNELS.get(name, 1)
        return func(*args, **(kwargs or {}))


def counted(step: Callable[[], object]) -> tuple[int, int]:
    """Return the kernels and the waits of a step."""
    step()
    with Launches() as launches:
        step()
    return launches.kernels, launches.waits


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"kernels of forward and backward (waits of the host), batch {BATCH}, {D} dimensions, {C} classes"
    )
    for heading in ("loss", "hyperparameters", "ours", "library", "ratio", "the library's formula, if another"):
        table.add_column(heading)
    embeddings_BD = torch.randn(BATCH, D, requires_grad=True)
    labels_B = torch.arange(BATCH) // IMAGES_PER_CLASS
    for row in ROWS:
        ours = LOSSES[row.name](num_classes=C, embedding_dim=D, **row.hyperparameters)
        ours.most_pairs = BATCH * (IMAGES_PER_CLASS - 1)  # as in a training
        steps = [trained(ours, embeddings_BD, labels_B)]
        if row.theirs is not None:
            steps.append(trained(row.theirs(), embeddings_BD, labels_B, row.miner() if row.miner else None))
        found = [counted(step) for step in steps]
        cells = [f"{kernels} ({waits})" for kernels, waits in found]
        cells += ["", ""] if row.theirs is None else [f"{found[1][0] / found[0][0]:.2f}×"]
        chosen = ", ".join(f"{key}={value}" for key, value in row.hyperparameters.items())
        table.add_row(row.name, chosen, *cells, row.note)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()

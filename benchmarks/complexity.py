"""Growth of a step's time and memory, compared to Table 2 of Saeki et al. 2023: python -m benchmarks.complexity

The paper counts the combinations of M training images, C classes and P proxies per class. A step sees a batch of the
images, so M is the batch size here. One size at a time is multiplied by ``FACTOR``; if the step then takes x times as
long, the exponent is log x / log ``FACTOR``. A step is forward and backward.

Shapes: B batch, D embedding.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.losses import trained
from benchmarks.timing import Step, best_device, machine, medians, peak_bytes
from trainables.losses import LOSSES

FACTOR = 4
SIZES = ("batch", "classes", "proxies a class", "dimensions")
OF_PAIRS = {"batch": 512, "classes": 8, "dimensions": 128}
OF_TRIPLETS = {"batch": 128, "classes": 8, "dimensions": 128}
OF_PROXIES = {"batch": 128, "classes": 4096, "dimensions": 128}
OF_SEVERAL = {"batch": 128, "classes": 1024, "proxies a class": 4, "dimensions": 128}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A loss, its complexity as printed in the paper, the initial ``sizes``, and the names in ``grows`` to increase."""

    name: str
    printed: str
    sizes: Mapping[str, int]
    grows: tuple[str, ...] = SIZES
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)


PAIRS = ("batch", "dimensions")  # the number of pairs does not depend on the classes
ROWS = (
    Row(name="contrastive", printed="M²", sizes=OF_PAIRS, grows=PAIRS),
    Row(name="triplet", printed="M³", sizes=OF_TRIPLETS, grows=PAIRS, hyperparameters={"mining": "all"}),
    Row(name="multi_similarity", printed="M³", sizes=OF_PAIRS, grows=PAIRS),
    Row(name="proxy_nca", printed="M C", sizes=OF_PROXIES),
    Row(name="proxy_anchor", printed="M C", sizes=OF_PROXIES),
    Row(name="soft_triple", printed="M C P²", sizes=OF_SEVERAL),
    Row(name="mpa", printed="M C P²", sizes=OF_SEVERAL),
    Row(name="mpa_dw", printed="M C P²", sizes=OF_SEVERAL),
    Row(name="mpa_ap", printed="M C P²", sizes=OF_SEVERAL),
)


def step_of(row: Row, sizes: Mapping[str, int], device: torch.device) -> Step:
    """Return a function that takes a step on random embeddings with equally many per class."""
    torch.manual_seed(0)
    several = {"proxies_per_class": sizes["proxies a class"]} if "proxies a class" in sizes else {}
    loss = LOSSES[row.name](
        num_classes=sizes["classes"], embedding_dim=sizes["dimensions"], **several, **row.hyperparameters
    )
    embeddings_BD = torch.randn(sizes["batch"], sizes["dimensions"], device=device, requires_grad=True)
    labels_B = torch.arange(sizes["batch"], device=device) % sizes["classes"]
    return trained(loss.to(device), embeddings_BD, labels_B)


def exponents(row: Row, device: torch.device) -> dict[str, tuple[float, float]]:
    """Return the exponents of time and peak memory for each size that grows."""
    grown = [size for size in row.grows if size in row.sizes]
    larger = [{**row.sizes, size: FACTOR * row.sizes[size]} for size in grown]
    steps = [step_of(row, sizes, device) for sizes in (row.sizes, *larger)]
    seconds = medians(steps, device=device, seconds=4.0, repeats=5)
    peaks = [peak_bytes(step, device=device) for step in steps]
    return {
        size: (_exponent(seconds[position], seconds[0]), _exponent(peaks[position], peaks[0]))
        for position, size in enumerate(grown, start=1)
    }


def _exponent(after: float, before: float) -> float:
    return math.log(after / before) / math.log(FACTOR)


def main() -> None:
    console, device = Console(width=120), best_device()
    table = Table(title=f"exponents of time and memory, sizes made {FACTOR} times as large, {machine(device)}")
    for heading in ("loss", "printed", "from (B, C, P, D)", *SIZES):
        table.add_column(heading, justify="right" if heading in SIZES else "left")
    for row in track(ROWS, console=console, transient=True):
        found = exponents(row, device)
        cells = ["{:.2f}, {:.2f}".format(*found[size]) if size in found else "–" for size in SIZES]
        table.add_row(row.name, row.printed, ", ".join(str(row.sizes.get(size, 1)) for size in SIZES), *cells)
    console.print(table)


if __name__ == "__main__":
    main()

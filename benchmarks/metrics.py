"""Metrics compared to the neighbour search alone: python -m benchmarks.metrics [images] [images per class]

Shapes: N images, D embedding.
"""

import sys

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import best_device, machine, medians
from trainables.metrics import all_metrics
from trainables.metrics.evaluation import evaluate
from trainables.metrics.gallery import nearest

D = 512
SLOW = ("map", "nmi", "f1")


def main(images: int = 60_000, images_per_class: int = 5) -> None:
    console = Console(width=120)
    device = best_device()
    torch.manual_seed(0)
    labels_N = (torch.arange(images) // images_per_class)[torch.randperm(images)].to(device)
    centres_CD = torch.randn(int(labels_N.max()) + 1, D, device=device)
    embeddings_ND = centres_CD[labels_N] + 1.5 * torch.randn(images, D, device=device)
    unit_ND = torch.nn.functional.normalize(embeddings_ND)
    names = [name for name in all_metrics() if name not in SLOW]
    neighbours = max(8, images_per_class - 1) + 1  # including itself
    seconds = medians(
        [
            lambda: nearest(unit_ND, unit_ND, neighbours),
            lambda: evaluate(embeddings_ND, labels_N, names),
        ],
        device=device,
        seconds=0,
        repeats=3,
    )
    rows = [(f"bare search, {neighbours} neighbours", seconds[0]), (f"all metrics but {', '.join(SLOW)}", seconds[1])]
    for slow in (["map"], ["nmi", "f1"]):
        (value,) = medians(
            [lambda slow=slow: evaluate(embeddings_ND, labels_N, slow)], device=device, seconds=0, repeats=1
        )
        rows.append((", ".join(slow), value))
    table = Table(title=f"{images} × {D}, {images_per_class} images a class, {machine(device)}; medians")
    for heading in ("what", "s", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, value in rows:
        table.add_row(what, f"{value:.2f}", f"{value / seconds[0]:.2f}×")
    console.print(table)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))

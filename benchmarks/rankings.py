"""Table 3 of Saeki et al. 2023, five rankings of one query, computed from embeddings: python -m benchmarks.rankings

Shapes: N images, including the query; 2 coordinates of a point on the circle.
"""

import torch
from rich.console import Console
from rich.table import Table

from trainables.metrics.evaluation import per_query_metrics

POSITIVES = 4
METRICS = ("recall_at_10", "precision_at_10", "map_at_r", "map_at_10", "ndcg_at_10")
PRINTED = {
    (1, 0, 0, 0, 0, 0, 0, 0, 0, 0): (100, 10, 25.0, 10.0, 39.0),
    (1, 0, 0, 0, 0, 0, 0, 0, 0, 1): (100, 20, 25.0, 12.0, 50.3),
    (1, 0, 1, 0, 0, 0, 0, 0, 0, 0): (100, 20, 41.7, 16.7, 58.6),
    (1, 0, 1, 0, 0, 0, 1, 0, 0, 1): (100, 40, 41.7, 25.0, 82.9),
    (1, 1, 1, 1, 0, 0, 0, 0, 0, 0): (100, 40, 100.0, 40.0, 100.0),
}
"""The first ten images of each ranking, 1 for the query's own class, and the metrics as printed in the paper."""


def scores(ranking: tuple[int, ...]) -> list[float]:
    """Return the metrics in percent of a query with the nearest images ``ranking`` and its other positives last.

    The images are on a circle, each one degree farther from the query than the previous one.
    """
    others = [*ranking, *[1] * (POSITIVES - sum(ranking))]
    angles_N = torch.deg2rad(torch.arange(len(others) + 1, dtype=torch.float32))
    embeddings_N2 = torch.stack([angles_N.cos(), angles_N.sin()], dim=1)
    labels_N = torch.tensor([1, *others])
    found = per_query_metrics(embeddings_N2, labels_N, METRICS, queries=1)
    return [100 * found[metric].item() for metric in METRICS]


def main() -> None:
    table = Table(title=f"a query with {POSITIVES} positives, per cent, the paper's numbers in brackets")
    for heading in ("ranking", *METRICS):
        table.add_column(heading, justify="left" if heading == "ranking" else "right")
    for ranking, printed in PRINTED.items():
        cells = [f"{ours:.1f} ({theirs:.1f})" for ours, theirs in zip(scores(ranking), printed, strict=True)]
        table.add_row(" ".join(map(str, ranking)), *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""Metrics of embeddings: retrieval, clustering and distances, each by name in ``METRICS``."""

from typing import TYPE_CHECKING

from trainables.metrics.table import METRICS, all_metrics, largest_k, metric_name, unknown_metrics
from trainables.parts import late_import

if TYPE_CHECKING:
    from trainables.metrics.clustering import clustering_metrics, distance_metrics
    from trainables.metrics.evaluation import evaluate, per_query_metrics, retrieval_metrics

__getattr__ = late_import(
    __name__,
    dict.fromkeys(("evaluate", "per_query_metrics", "retrieval_metrics"), ".evaluation")
    | dict.fromkeys(("clustering_metrics", "distance_metrics"), ".clustering"),
)

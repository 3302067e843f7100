"""What embeddings are scored by: retrieval, clustering and distances, each metric by name in ``METRICS``."""

from trainables.metrics.clustering import clustering_metrics
from trainables.metrics.distances import distance_metrics
from trainables.metrics.evaluate import (
    METRICS,
    all_metrics,
    evaluate,
    largest_k,
    per_query_metrics,
    retrieval_metrics,
    unknown_metrics,
)

__all__ = [
    "METRICS",
    "all_metrics",
    "clustering_metrics",
    "distance_metrics",
    "evaluate",
    "largest_k",
    "per_query_metrics",
    "retrieval_metrics",
    "unknown_metrics",
]

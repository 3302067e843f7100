"""What metrics are made of, image by image or class by class: from these alone they can be computed once more.

Shapes: N images.
"""

from collections.abc import Mapping, Sequence

import torch

from trainables.metrics.clustering import agreement, clusters_of, superclass_agreement
from trainables.metrics.distances import class_distances, distances_of
from trainables.metrics.evaluation import per_query_metrics
from trainables.metrics.inputs import checked_superclasses
from trainables.metrics.table import CLUSTERING, DISTANCES, is_retrieval, superclass_metrics

CLUSTERS = "clusters"
SUPERCLASS, CLUSTERS_SUPER = "superclass", "clusters_super"
INTRA, INTER = "class_distances_intra", "class_distances_inter"


def metric_parts(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str],
    superclasses_N: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """The parts of those of the metrics ``names`` that have any, which one's own have not.

    Of a retrieval metric, under its name, the score of each query; of clustering the cluster of each image, and where
    superclasses are asked for, of each image its superclass and its cluster among as many; of the distances those
    within and from each class.

    Raises:
        Mistakes: no embeddings, not finite, labels of another number, or no superclasses for a metric that needs them.
    """
    parts = per_query_metrics(embeddings_ND, labels_N, [name for name in names if is_retrieval(name)])
    if not CLUSTERING.keys().isdisjoint(names):
        parts[CLUSTERS] = clusters_of(embeddings_ND, labels_N)
    if superclass_metrics(names):
        parts[SUPERCLASS] = checked_superclasses(names, superclasses_N)
        parts[CLUSTERS_SUPER] = clusters_of(embeddings_ND, parts[SUPERCLASS])
    if not DISTANCES.keys().isdisjoint(names):
        parts[INTRA], parts[INTER] = class_distances(embeddings_ND, labels_N)
    return parts


def from_parts(parts: Mapping[str, torch.Tensor], labels_N: torch.Tensor, names: Sequence[str]) -> dict[str, float]:
    """The metrics ``names``, as far as they have parts."""
    values = {name: parts[name].mean().item() for name in names if is_retrieval(name)}
    if not CLUSTERING.keys().isdisjoint(names):
        values |= agreement(labels_N, parts[CLUSTERS])
    if superclass_metrics(names):
        values |= superclass_agreement(parts[SUPERCLASS], parts[CLUSTERS_SUPER])
    if not DISTANCES.keys().isdisjoint(names):
        values |= distances_of(parts[INTRA], parts[INTER])
    return {name: values[name] for name in names if name in values}

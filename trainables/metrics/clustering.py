"""How well k-means on the embeddings finds the classes again.

Shapes: N images, D embedding, C classes and as many clusters.
"""

import torch

from trainables.metrics.inputs import checked
from trainables.metrics.kmeans import kmeans


def clustering_metrics(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, *, seed: int = 0) -> dict[str, float]:
    """``nmi`` and pairwise ``f1`` (Song et al. 2016) of k-means on the unit vectors, begun from ``seed``.

    Example: classes aabb, clusters 1112: nmi = .344, f1 = 2·(1/3)(1/2)/(1/3 + 1/2) = .4.

    Raises:
        Mistakes: no embeddings, not finite, or labels of another number.
    """
    return agreement(labels_N, clusters_of(embeddings_ND, labels_N, seed=seed))


def superclass_agreement(superclasses_N: torch.Tensor, clusters_N: torch.Tensor) -> dict[str, float]:
    """``nmi_super`` and ``f1_super``: the agreement of clusters, as many as superclasses, with the superclasses."""
    return {f"{name}_super": value for name, value in agreement(superclasses_N, clusters_N).items()}


def clusters_of(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, *, seed: int = 0) -> torch.Tensor:
    """The cluster of each image, int64 [N] beside its label, by k-means on the unit vectors with as many clusters as
    classes.

    Raises:
        Mistakes: no embeddings, not finite, or labels of another number.
    """
    embeddings_ND, _ = checked(embeddings_ND, labels_N)
    unit_ND = torch.nn.functional.normalize(embeddings_ND.double()).float()
    return kmeans(unit_ND, len(labels_N.unique()), seed=seed).to(labels_N.device)


def agreement(labels_N: torch.Tensor, clusters_N: torch.Tensor) -> dict[str, float]:
    """``nmi`` and ``f1`` of two partitions of the same images, whatever the parts' numbers."""
    cell_N = labels_N.unique(return_inverse=True)[1] * len(clusters_N) + clusters_N.unique(return_inverse=True)[1]
    counts = [part.unique(return_counts=True)[1].double() for part in (labels_N, clusters_N, cell_N)]
    of_labels, of_clusters, of_cells = (_entropy(sizes) for sizes in counts)
    in_class, in_cluster, in_both = ((sizes * (sizes - 1)).sum().item() for sizes in counts)
    total = of_labels + of_clusters
    pairs = in_class + in_cluster
    return {
        "nmi": 2 * (of_labels + of_clusters - of_cells) / total if total else 1.0,
        "f1": 2 * in_both / pairs if pairs else 1.0,
    }


def _entropy(sizes: torch.Tensor) -> float:
    shares = sizes / sizes.sum()
    return -(shares * shares.log()).sum().item()

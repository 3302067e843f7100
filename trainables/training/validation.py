"""The items on which an epoch, or a network without training, is scored.

Shapes: N items of all views, D embedding dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.data.dataset import Dataset
from trainables.data.store.view import StoreView, protocol_for, superclasses_for
from trainables.metrics.evaluation import evaluate, per_query_metrics
from trainables.metrics.table import is_retrieval


class Validation:
    """The validation items ``queries`` of ``dataset``, and a ``gallery`` of training items as further wrong neighbours.

    Attributes:
        views: the queries, and the gallery if there is one.
    """

    def __init__(
        self, metrics: Sequence[str], dataset: Dataset, queries: StoreView, gallery: StoreView | None = None
    ) -> None:
        self.views = [queries] if gallery is None else [queries, gallery]
        self._metrics = metrics
        self._labels_N = torch.as_tensor(queries.labels_N)
        if gallery is not None:
            self._labels_N = torch.cat((self._labels_N, gallery.labels_N + len(queries.class_names)))
        self._superclasses_N = superclasses_for(metrics, dataset, queries)
        self._protocol = protocol_for(dataset, queries.image_keys)

    def by_class(self, embeddings_ND: Tensor, metric: str) -> dict[str, float]:
        """Return ``metric`` for the queries of each class; empty if it is not computed by query."""
        if not is_retrieval(metric):
            return {}
        view = self.views[0]
        (scores_Q,) = per_query_metrics(
            embeddings_ND, self._labels_N, [metric], queries=len(view), protocol=self._protocol
        ).values()
        is_query_Q, classes = ~scores_Q.isnan(), len(view.class_names)
        labels_Q = torch.as_tensor(view.labels_N)[is_query_Q]
        counts_C = torch.bincount(labels_Q, minlength=classes)
        means_C = torch.bincount(labels_Q, weights=scores_Q[is_query_Q], minlength=classes) / counts_C
        return {name: means_C[c].item() for c, name in enumerate(view.class_names) if counts_C[c]}

    def scores(self, embeddings_ND: Tensor) -> dict[str, float]:
        """Return the metrics of the embeddings of all ``views``, one after the other."""
        return evaluate(
            embeddings_ND, self._labels_N, self._metrics,
            queries=len(self.views[0]), superclasses_N=self._superclasses_N, protocol=self._protocol,
        )  # fmt: skip

"""The items on which an epoch, or a network without training, is scored.

Shapes: N items of all views, D embedding dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.data.dataset import Dataset
from trainables.data.store.view import StoreView, protocol_for, superclasses_for
from trainables.metrics.evaluation import evaluate


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

    def scores(self, embeddings_ND: Tensor) -> dict[str, float]:
        """Return the metrics of the embeddings of all ``views``, one after the other."""
        return evaluate(
            embeddings_ND, self._labels_N, self._metrics,
            queries=len(self.views[0]), superclasses_N=self._superclasses_N, protocol=self._protocol,
        )  # fmt: skip

"""The superclass of each image: what a data set groups its classes into.

Shapes: N images of a view, C its classes.
"""

from collections.abc import Sequence

import torch

from trainables.data.dataset import Dataset
from trainables.data.store.view import StoreView
from trainables.metrics.table import superclass_metrics


def superclasses_for(metrics: Sequence[str], dataset: Dataset, view: StoreView) -> torch.Tensor | None:
    """The superclass of each image of ``view``, int64 [N], numbered by their names; None where no metric needs it."""
    if not superclass_metrics(metrics):
        return None
    superclass_of = dataset.superclasses()
    assert superclass_of is not None, "the plan refuses these metrics on a data set without superclasses"
    of_classes = [superclass_of[name] for name in view.class_names]
    number_of = {name: number for number, name in enumerate(sorted(set(of_classes)))}
    return torch.tensor([number_of[name] for name in of_classes])[view.labels_N]

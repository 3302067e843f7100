"""A test metric in galleries of the validation's size.

With fewer classes there are fewer wrong neighbours: a validation value cannot be compared with one on ten times as many
classes.
"""

import numpy as np
import torch

from trainables.metrics import evaluate

DRAWS = 20


def in_small_galleries(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    metric: str,
    classes: int,
    superclasses_N: torch.Tensor | None = None,
) -> float:
    """The mean of ``metric`` over draws of so many of the test classes, the same ones for every model.

    With as many classes as there are, it is the metric itself.
    """
    of_images_N = labels_N.cpu().numpy()
    known = np.unique(of_images_N)
    if classes >= len(known):
        return evaluate(embeddings_ND, labels_N, [metric], superclasses_N=superclasses_N)[metric]
    generator = np.random.default_rng(0)
    values = []
    for _ in range(DRAWS):
        chosen = torch.from_numpy(np.isin(of_images_N, generator.choice(known, classes, replace=False)))
        drawn = evaluate(
            embeddings_ND[chosen.to(embeddings_ND.device)],
            labels_N[chosen.to(labels_N.device)],
            [metric],
            superclasses_N=None if superclasses_N is None else superclasses_N[chosen],
        )
        values.append(drawn[metric])
    return float(np.mean(values))

"""What every loss is: a module of embeddings and labels that knows its learned parameters.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn

from trainables.losses.domains import whole
from trainables.losses.operations import promoted, unit
from trainables.losses.proxy_cosines import proxy_cosines
from trainables.losses.used import Used
from trainables.mistakes import Mistakes


class Loss(nn.Module, ABC):
    """``loss(embeddings_BD, labels_B)`` gives a scalar that is attached to the graph, whatever the batch.

    What is known of a built-in loss stands in its row of ``LOSSES`` and in ``SPACES``. One's own loss says it in class
    attributes: ``space``, its hyperparameters by name (:class:`spaces.space.Parameter`), and where they apply
    ``name``, ``paper``, ``equation`` and ``proxy_lr``, the learning rate of its proxies.

    A loss that mines, samples or sums plain pairs says in ``used`` what the last batch came to: ``compute`` sets it.
    It stays None where a loss always takes the whole batch, through proxies, a ranking or a logarithm of all.

    ``static_shapes`` says that in ``compute`` no shape depends on the values of a batch, that nothing is drawn, and
    that attributes of type float may be 0-dim tensors: then the losses of several trainings are computed as one
    (:mod:`trainables.training.stack`).
    """

    used: Used | None = None
    static_shapes: bool = False

    def forward(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """The loss of a batch: raw embeddings of any floating type, whole labels in [0, C), in any order."""
        with torch.autocast(embeddings_BD.device.type, enabled=False):  # it would halve the similarities' digits
            return self.compute(promoted(embeddings_BD), labels_B.long())

    @abstractmethod
    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """The loss of a batch whose embeddings are of float32 at least."""

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """The learned parameters as groups for an optimiser, each with its own learning rate.

        A loss without parameters has no group, and one without proxies needs no ``proxy_lr``.
        """
        return []


class ProxyLoss(Loss):
    """A loss with one parameter ``proxies`` of shape [C, K, D], of which a loss of cosines uses the directions."""

    def __init__(self, *, num_classes: int, embedding_dim: int, proxies_per_class: int = 1) -> None:
        super().__init__()
        self.proxies = nn.Parameter(self.initial_proxies(num_classes, proxies_per_class, embedding_dim))

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """The proxies before training [C, K, D]: N(0, 2/C), as in the code of Proxy-Anchor's authors.

        Only directions matter to a loss of cosines, but the length sets how far a step of Adam turns a proxy. So a loss
        whose authors begin otherwise, and whose learning rate goes with that, overrides this.
        """
        return (2 / num_classes) ** 0.5 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def similarities(self, embeddings_BD: torch.Tensor) -> torch.Tensor:
        """S_BC: the cosine similarity of every embedding to the first proxy of every class."""
        return proxy_cosines(unit(embeddings_BD), promoted(self.proxies[:, :1]))[0][0]

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """The proxies, at ``proxy_lr``.

        Raises:
            Mistakes: there is none.
        """
        if proxy_lr is None:
            raise Mistakes(
                f"training.proxy_lr is null, and {type(self).__name__} names no learning rate for its proxies: "
                "set training.proxy_lr, or give the class an attribute proxy_lr."
            )
        return [{"params": [self.proxies], "lr": proxy_lr}]


def sizes(num_classes: object, embedding_dim: object) -> list[str]:
    """The sentences about the two sizes that every loss is given."""
    return [
        *whole("num_classes", num_classes, at_least=1),
        *whole("embedding_dim", embedding_dim, at_least=1),
    ]

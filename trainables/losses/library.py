"""Losses of the library pytorch-metric-learning by import path. Shapes: B batch, D embedding."""

from collections.abc import Mapping
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trainables.common.errors import InvalidInput
from trainables.common.part_tables import load_part
from trainables.common.ranges import Choice, Float, Int, Range
from trainables.losses import LIBRARY
from trainables.losses.loss import Loss

GIVEN = ("num_classes", "embedding_size")
"""The library's names for what a search gives every loss."""

COUNTS = ("centers_per_class", "sub_centers", "num_bins")
"""Hyperparameters of the library that are whole numbers; its defaults of the others may look like ones."""

NO_MINER = "none"
PROXY_LR = 1e-2
"""The learning rate of a loss's weights in the library's own examples."""


class LibraryLoss(Loss):
    """Base of the adapters: a loss of the library, after a miner if ``miner`` is the import path of one.

    ``library_class`` is the loss. ``space`` has the plain values in its constructor, which a search file widens.
    """

    library_class: ClassVar[type[nn.Module]]
    space: ClassVar[Mapping[str, Range]]
    needs: ClassVar[tuple[str, ...]]

    def __init__(self, *, num_classes: int, embedding_dim: int, miner: str = NO_MINER, **params: Any) -> None:
        super().__init__()
        given = dict(zip(GIVEN, (num_classes, embedding_dim), strict=True))
        self.loss = self.library_class(**{name: given[name] for name in self.needs}, **params)
        self.miner = None if miner == NO_MINER else _miner(miner)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Return the library's loss of the batch, on the pairs or triplets of the miner if there is one."""
        mined = None if self.miner is None else self.miner(embeddings_BD, labels_B)
        return self.loss(embeddings_BD, labels_B, mined)

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Return one group: the weights of the loss, at ``proxy_lr``; none if it has no weights."""
        weights = list(self.loss.parameters())
        return [{"params": weights, "lr": proxy_lr or PROXY_LR}] if weights else []


def library_loss(path: str) -> type[LibraryLoss]:
    """Return the adapter of the library's loss at ``path``, if it needs only embeddings and labels."""
    if find_spec(LIBRARY) is None:
        raise InvalidInput(
            f"The loss {path!r} is one of pytorch-metric-learning, which is not installed; `pip install "
            "pytorch-metric-learning`, on every machine that trains."
        )
    loss = load_part(path, kind="loss", base=load_part(f"{LIBRARY}.losses:BaseMetricLossFunction"))
    parameters = signature(loss).parameters
    passes_on = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values())
    taken = {**parameters, **(signature(loss.__base__).parameters if passes_on else {})}
    needs = tuple(name for name in GIVEN if name in taken and taken[name].default is Parameter.empty)
    defaults = {name: parameter.default for name, parameter in parameters.items()} | {"miner": NO_MINER}
    space = {
        name: _only(name, default)
        for name, default in defaults.items()
        if isinstance(default, bool | int | float | str)
    }
    keywords = [Parameter(name, Parameter.KEYWORD_ONLY) for name in ("num_classes", "embedding_dim")]
    keywords += [Parameter(name, Parameter.KEYWORD_ONLY, default=entry.default) for name, entry in space.items()]
    members = {
        "__doc__": f"The library's {loss.__name__}.",
        "__signature__": Signature(keywords),
        "library_class": loss,
        "space": space,
        "needs": needs,
        "paper": f"{loss.__name__} of pytorch-metric-learning",
        "proxy_lr": PROXY_LR if "num_classes" in needs else None,
    }
    adapter: type[LibraryLoss] = type(loss.__name__, (LibraryLoss,), members)
    with torch.random.fork_rng(devices=()):
        embeddings_BD = torch.randn(4, 4, requires_grad=True)
        try:
            adapter(num_classes=2, embedding_dim=4)(embeddings_BD, torch.tensor([0, 0, 1, 1])).backward()
        except Exception as error:  # whatever a loss of the library raises
            raise InvalidInput(
                f"The loss {path!r} cannot be computed from embeddings and labels alone ({type(error).__name__}: "
                f"{error}); write a class that derives from holdout.parts.Loss around it, and name that."
            ) from error
    return adapter


def _only(name: str, value: Any) -> Range:
    """Return the range of one value, the library's default."""
    given: dict[str, Any] = {"default": value, "source": "pytorch-metric-learning's default"}
    if isinstance(value, bool | str):
        return Choice((value,), **given)
    return Int(int(value), int(value), **given) if name in COUNTS else Float(value, value, **given)


def _miner(path: str) -> Any:
    """Return the miner at ``path`` with the library's defaults."""
    if not path.startswith(f"{LIBRARY}."):
        raise InvalidInput(
            f"miner must be {NO_MINER} or the import path of a miner, such as "
            f"{LIBRARY}.miners:MultiSimilarityMiner; it is {path!r}."
        )
    miner = load_part(path, kind="miner", base=load_part(f"{LIBRARY}.miners:BaseMiner"))
    try:
        return miner()
    except TypeError as error:
        raise InvalidInput(
            f"The miner {path!r} cannot be built without arguments ({error}); name another one."
        ) from error
